package test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// Whatever is given to an orchestrator, and whatever its workers answer.

// FuzzTerm reads settings, changes and answers out of bytes, and checks what
// each term publishes.
func FuzzTerm(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x00, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte("\x05several workers that answer, and some that do not"))
	f.Add([]byte{0x1f, 4, 200, 1, 7, 90, 255, 3, 17, 40, 41, 42, 250, 251, 252, 253, 254, 9, 8, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // nothing new, only slow
		}
		synctest.Test(t, func(t *testing.T) { newBabel(t, data).run() })
	})
}

// FuzzOptions gives New and AddTask any values: each is refused with ErrInvalid,
// or taken, and then a term runs.
func FuzzOptions(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), 0, 0, 0.5, int8(0), uint64(0), 1, "t")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), -1, -1, -0.1, int8(-1), uint64(1), -1, "")
	f.Add(int64(time.Second), int64(0), int64(0), int64(24*time.Hour), 1, 0, 1.0, int8(2), uint64(0), 3, "t")
	f.Add(int64(time.Hour)+1, int64(math.MaxInt64), int64(time.Hour)+1, int64(24*time.Hour)+1, 1, math.MaxInt, math.NaN(), int8(3), uint64(math.MaxUint64), math.MaxInt, "\xff")
	f.Fuzz(func(t *testing.T, timeout, grace, settle, pause int64, calls, moves int, loss float64, order int8, epoch uint64, instances int, name string) {
		o, err := orchestrator.New(communicator.Func[string, string]{},
			orchestrator.WithCommunicatorTimeout(time.Duration(timeout)), orchestrator.WithGracePeriod(time.Duration(grace)),
			orchestrator.WithSettle(time.Duration(settle)), orchestrator.WithConcurrency(calls), orchestrator.WithMaxMoves(moves),
			orchestrator.WithMaxLoss(loss), orchestrator.WithHandoff(orchestrator.Handoff(order)), orchestrator.WithEpoch(epoch),
			orchestrator.WithMaxPause(time.Duration(pause)), orchestrator.WithSeed(epoch))
		handoff := order >= 0 && order <= int8(orchestrator.StartThenStop)
		good := timeout > 0 && timeout <= int64(time.Hour) && grace >= 0 && settle >= 0 && settle <= int64(time.Hour) &&
			pause > 0 && pause <= int64(24*time.Hour) &&
			calls >= 1 && moves >= 0 && loss >= 0 && loss <= 1 && handoff
		require.Equal(t, good, err == nil, "%v", err)
		if !good {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			return
		}
		require.NoError(t, o.AddWorker(name))
		taken := o.AddTask(name, orchestrator.WithTaskInstances(instances)) == nil
		require.Equal(t, instances >= 1 && instances <= math.MaxInt32, taken)
		if instances == 0 { // means 1 here, and is no option's value
			return
		}
		err = o.UpdateTasks([]task{{Name: name, Instances: instances}})
		require.Equal(t, taken, err == nil)
		if err != nil {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.Empty(t, o.ListExpectedTasks(), "all or nothing")
		}
		require.ErrorContains(t, o.NextTerm(t.Context()), "list worker") // it has no ListFunc
		plan, err := o.Plan(orchestrator.Hypothesis[string, string]{Drain: []string{name}})
		require.NoError(t, err)
		require.NotEmpty(t, plan.String())
	})
}

// FuzzPlanText gives a plan any names: its table has a line for each thing that
// it tells of, and its JSON is valid.
func FuzzPlanText(f *testing.F) {
	f.Add("w", "t", "an error", "missing", 3, uint8(1))
	f.Add("", "\t\n\v\f\x1b[0m", "\xff", "", 60, uint8(255))
	f.Fuzz(func(t *testing.T, worker, task, cause, reason string, n int, state uint8) {
		n = min(max(0, n), 200)
		var p plan
		for range n {
			for _, op := range []orchestrator.ChangeOp{orchestrator.Start, orchestrator.Stop, orchestrator.Move} {
				p.Changes = append(p.Changes, change{
					Kind: orchestrator.ChangeKind{Op: op, Reason: orchestrator.Reason(reason)}, Task: task, From: worker, To: worker,
					Outcome: orchestrator.OutcomeFailed, Err: errors.New(cause),
				})
			}
			p.Waiting = append(p.Waiting, waiting{Task: task, Instances: n, Worker: worker, Named: n%2 == 0})
			p.Paused = append(p.Paused, pause{Kind: orchestrator.PauseStart, Worker: worker, Task: task, Err: errors.New(cause)})
			p.Workers = append(p.Workers, orchestrator.WorkerPlan[string]{Name: worker, State: orchestrator.State(state)})
		}
		text, err := json.Marshal(p)
		require.NoError(t, err)
		require.True(t, json.Valid(text))
		table := p.String()
		require.LessOrEqual(t, len(table), 1000+50*6*4*(len(worker)*2+len(task)+len(cause)+len(reason)+100), "bounded, whatever the plan")
		if !strings.ContainsAny(worker+task+cause+reason, "\n\v\f\r") {
			rows := 0
			if n > 0 {
				rows = 4*2 + 2*min(n, 50) + min(3*n, 50) + min(n, 50)
				for _, m := range []int{3 * n, n, n, n} {
					if m > 50 {
						rows++ // … and more
					}
				}
			}
			require.Equal(t, 1+rows, strings.Count(table, "\n"), "%s", table)
		}
	})
}

var (
	babelTasks   = names("t", 6)
	babelWorkers = names("w", 5)
)
