package history_test

import (
	"bytes"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a leader with workers in a bubble, whose terms are recorded.
type fleet struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	ring *history.Ring
	t    *testing.T
}

// inBubble runs a test with a fleet that expects some tasks.
func inBubble(t *testing.T, ring func() (*history.Ring, error), workers, tasks []string, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := memory.New[string, string](nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, cluster.Close(t.Context())) }()
		cluster.Start(workers...)
		f := &fleet{Cluster: cluster, t: t}
		f.ring, err = ring()
		require.NoError(t, err)
		defer func() { require.NoError(t, f.ring.Close()) }()
		f.lead()
		for _, w := range workers {
			require.NoError(t, f.AddWorker(w))
		}
		for _, task := range tasks {
			require.NoError(t, f.AddTask(task))
		}
		test(t, f)
	})
}

// lead gives the fleet a new leader, which knows no workers and tasks.
func (f *fleet) lead() {
	f.t.Helper()
	time.Sleep(time.Millisecond) // a higher epoch
	var err error
	f.Orchestrator, err = orchestrator.New(f, orchestrator.WithSeed(0), orchestrator.WithGracePeriod(2*time.Second), orchestrator.WithMaxLoss(1))
	require.NoError(f.t, err)
	history.Record(f.ring, f.Orchestrator)
}

// terms runs terms, a second apart, and checks the number of tasks that are recorded.
func (f *fleet) terms(n int) {
	f.t.Helper()
	for range n {
		time.Sleep(time.Second)
		_ = f.NextTerm(f.t.Context()) // it may fail
		next, stop := iter.Pull(f.Last().Loads())
		for w := range f.Last().Workers() {
			load, ok := next()
			require.True(f.t, ok)
			require.Len(f.t, w.Tasks, load, w.Name)
		}
		stop()
	}
}

func inMemory() (*history.Ring, error) { return history.New() }

// TestRecord_QuietTermsAreMerged checks the rows of a timeline.
func TestRecord_QuietTermsAreMerged(t *testing.T) {
	inBubble(t, inMemory, []string{"w1", "w2"}, []string{"a", "b", "c"}, func(t *testing.T, f *fleet) {
		f.terms(5)
		require.NoError(t, f.AddTask("d"))
		f.terms(3)
		v := f.ring.View()
		type row struct {
			number  uint64
			changes int
			quiet   int
		}
		var rows []row
		for term, quiet := range v.Terms(orchestrator.Term{}) {
			rows = append(rows, row{term.Stats.Term.Number, len(term.Changes), quiet.Terms})
		}
		// The first quiet term says that all tasks run, which the one before did not.
		require.Equal(t, []row{{6, 1, 2}, {1, 3, 4}}, rows)
		last, _ := v.Last()
		require.Equal(t, f.Last().Plan().Stats.Term, last)
		require.Equal(t, 6, v.Counts().Quiet)
		require.Equal(t, []int{1}, loads(v, "w1")[:1])
	})
}

func loads(v *history.View, worker string) (tasks []int) {
	for _, l := range v.Load(worker) {
		tasks = append(tasks, l.Tasks)
	}
	return tasks
}

// TestRepeated_FailuresAreOneRow makes a worker refuse a task for several terms.
func TestRepeated_FailuresAreOneRow(t *testing.T) {
	inBubble(t, inMemory, []string{"w1"}, []string{"good", "bad"}, func(t *testing.T, f *fleet) {
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op == orchestrator.OpAdd && task == "bad" {
				return errors.New("no disk")
			}
			return nil
		})
		f.terms(20)
		rows, matching := f.ring.View().Repeated(history.Filter{Task: new("bad")}, history.Position{}, 5)
		require.Len(t, rows, 1)
		require.Equal(t, matching, rows[0].Times)
		require.Greater(t, matching, 2)
		require.EqualValues(t, 1, rows[0].First.Number)
		rows, _ = f.ring.View().Repeated(history.Filter{}, history.Position{}, 5)
		require.Len(t, rows, 2)
		require.Equal(t, "good", rows[1].Change.Task)
		after, _ := f.ring.View().Repeated(history.Filter{}, rows[0].At, 5)
		require.Equal(t, rows[1:], after)
	})
}

// TestEvents_UpAndDown records the silence, loss, return and removal of a worker.
func TestEvents_UpAndDown(t *testing.T) {
	inBubble(t, inMemory, []string{"w1", "w2"}, []string{"a", "b"}, func(t *testing.T, f *fleet) {
		f.terms(2)
		f.Cut("w2")
		f.terms(4)
		f.Heal()
		f.terms(2)
		require.NoError(t, f.DrainWorker("w2"))
		f.terms(1)
		f.RemoveWorker("w2")
		f.terms(1)
		var states []string
		for _, e := range f.ring.View().Events("w2") {
			state := "removed"
			require.Equal(t, e.After != nil && e.After.State != orchestrator.Answering, e.Err != "", "%+v", e)
			if e.After != nil {
				state = e.After.State.String()
				if e.After.Draining {
					state += ", draining"
				}
			}
			states = append(states, state)
		}
		slices.Reverse(states)
		require.Equal(t, []string{"silent", "lost", "answering", "answering, draining", "removed"}, states)
	})
}

// logs collects the messages of a logger.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// count returns how often a message was logged.
func (l *logs) count(message string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), message)
}
