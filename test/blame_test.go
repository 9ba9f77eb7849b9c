package test

// T9 and T10: what stays where it is while something fails.

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// T-g: a task does not stop on a draining worker, and weights differ. No healthy task moves there and
// back for it.
func TestT10_NoRoomForAStopThatFails(t *testing.T) {
	for name, fault := range map[string]func(context.Context) error{"hangs": hang, "fails": fails(errBoom)} {
		t.Run(name, bubble(given{workers: 4}, func(t *testing.T, f *fleet) {
			for i, weight := range []int64{60, 10, 25, 30, 20, 15, 40, 12, 35, 18, 22, 28} {
				require.NoError(t, f.AddTask(fmt.Sprint("t", i), orchestrator.WithTaskWeight(weight)))
			}
			f.start(tick)
			time.Sleep(10 * time.Second)
			heavy := f.Running("t0")[0]
			f.intercept(on(orchestrator.OpRemove, heavy, "t0", fault))
			require.NoError(t, f.DrainWorker(heavy))
			time.Sleep(time.Minute)
			before := f.startsSince(0)
			time.Sleep(2 * time.Minute)
			require.Equal(t, before, f.startsSince(0), "nothing healthy moves")
			require.Equal(t, []string{"t0"}, f.RunsOn(heavy))
			f.intercept(nil)
			time.Sleep(time.Minute)
			require.Empty(t, f.RunsOn(heavy))
			f.requireAllRun()
		}))
	}
}

// T-h: a worker is quarantined because its disk is full, and a task starts nowhere. The worker is
// tried with healthy tasks, and its reason stays.
func TestT9_CausesDoNotMix(t *testing.T) {
	full, poison := errors.New("disk full"), errors.New("bad task")
	inBubble(t, given{workers: 4, running: 20}, func(t *testing.T, f *fleet) {
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			switch {
			case op != orchestrator.OpAdd:
				return nil
			case worker == "w1":
				return fmt.Errorf("%w: %w", orchestrator.ErrRejected, full)
			case task == "poison":
				return fmt.Errorf("%w: %w", orchestrator.ErrRejected, poison)
			}
			return nil
		})
		require.NoError(t, f.AddTask("poison"))
		for _, task := range f.RunsOn("w1")[:4] {
			f.RemoveTask(task)
			require.NoError(t, f.AddTask(task+" again"))
		}
		f.Kill("w2")
		f.RemoveWorker("w2") // its tasks start elsewhere, and w1 is the emptiest
		quarantined := false
		for range 100 {
			_ = f.NextTerm(t.Context())
			for _, p := range f.paused(orchestrator.PauseWorker) {
				require.Equal(t, "w1", p.Worker)
				require.ErrorIs(t, p.Err, full)
			}
			if quarantined {
				require.Empty(t, filter(f.addsTo("w1"), func(c call) bool { return c.Task == "poison" }))
			}
			f.forget()
			quarantined = len(f.quarantined()) > 0
			time.Sleep(time.Second)
		}
		require.Equal(t, []string{"w1"}, f.quarantined())
		require.ErrorIs(t, f.paused(orchestrator.PauseTask)[0].Err, poison)
	})
}

// A worker rejects a task that it is to get for an even spread: the task is stopped and given back
// after pauses that double, not in each term.
func TestT9_AMoveThatIsRejectedPauses(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		for i, w := range f.workers {
			require.NoError(t, f.AddWorker(w, orchestrator.WithWorkerLabels(fmt.Sprint("l", i+1))))
		}
		f.Refuse(func(op orchestrator.Op, worker, task string) error {
			if op == orchestrator.OpAdd && worker == "w2" && task == "t1" {
				return errRejected
			}
			return nil
		})
		for task, label := range map[string]string{"a": "l1", "b": "l1", "c": "l2"} {
			require.NoError(t, f.AddTask(task, orchestrator.WithTaskRequires(label)))
		}
		require.NoError(t, f.AddTask("t1"))
		stops := 0
		for range 100 {
			_ = f.NextTerm(t.Context())
			stops += f.outcomes()[orchestrator.OutcomeReturned]
			time.Sleep(time.Second)
		}
		require.LessOrEqual(t, stops, 10)
		require.Equal(t, []string{"w1"}, f.Running("t1"))
	})
}
