package test

// What earlier libraries of this kind did well, as a table, and a test for each of their
// failures.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// recorder returns a Communicator that carries out each call at once, on lists.
func recorder[W, T comparable](lists map[W][]T) orchestrator.Communicator[W, T] {
	var mu sync.Mutex
	return communicator.Func[W, T]{
		ListFunc: func(_ context.Context, w W) ([]T, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(lists[w]), nil
		},
		AddFunc: func(_ context.Context, w W, t T) error {
			mu.Lock()
			defer mu.Unlock()
			lists[w] = append(lists[w], t)
			return nil
		},
		RemoveFunc: func(_ context.Context, w W, t T) error {
			mu.Lock()
			defer mu.Unlock()
			lists[w] = slices.DeleteFunc(lists[w], func(x T) bool { return x == t })
			return nil
		},
	}
}

// run starts tasks on a worker without the leader.
func (f *fleet) run(worker, tasks string) {
	f.t.Helper()
	for task := range strings.FieldsSeq(tasks) {
		require.NoError(f.t, f.Cluster.Add(f.t.Context(), worker, task))
	}
}

// Each case begins with what the workers w1 to w3 run, and runs one term.
func TestBehaviour(t *testing.T) {
	two := orchestrator.WithTaskInstances(2)
	for _, c := range []struct {
		name    string
		runs    [3]string
		prepare func(*fleet)
		adds    int
		removes []string // exactly these, or, where they end in *, so many
		loads   []int
	}{
		{name: "tasks are split evenly", adds: 3, loads: []int{1, 1, 1}},
		{
			name: "a worker and a task may be added twice",
			prepare: func(f *fleet) {
				_ = f.AddWorker("w1")
				_ = f.AddTask("t1")
			},
			adds: 3, loads: []int{1, 1, 1},
		},
		{name: "what runs is not replaced", runs: [3]string{"t2"}, adds: 2, loads: []int{1, 1, 1}},
		{name: "an unexpected task is removed", runs: [3]string{"extra"}, adds: 3, removes: []string{"remove extra w1"}, loads: []int{1, 1, 1}},
		{
			name: "one of two copies is trimmed, and what is missing started",
			runs: [3]string{"t1", "t1"},
			adds: 2, removes: []string{"remove t1 *"}, loads: []int{1, 1, 1},
		},
		{
			name:    "a worker removed: the others share its task",
			runs:    [3]string{"t1", "t2", "t3"},
			prepare: func(f *fleet) { f.RemoveWorker("w2") },
			adds:    1, loads: []int{-1, 1, -1},
		},
		{
			name:    "workers updated: the others share its task",
			runs:    [3]string{"t1", "t2", "t3"},
			prepare: func(f *fleet) { _ = f.UpdateWorkers([]member{{Name: "w1"}, {Name: "w3"}}) },
			adds:    1, loads: []int{-1, 1, -1},
		},
		{
			name: "an empty worker gets one of two",
			runs: [3]string{"t1 t2", "", "t3"},
			adds: 1, removes: []string{"remove * w1"}, loads: []int{1, 1, 1},
		},
		{
			name:    "four on three: nothing moves",
			runs:    [3]string{"t1 t4", "t2", "t3"},
			prepare: func(f *fleet) { _ = f.AddTask("t4") },
			loads:   []int{2, 1, 1},
		},
		{
			name:    "a task removed is stopped, and nothing else moves",
			runs:    [3]string{"t1", "t2", "t3"},
			prepare: func(f *fleet) { f.RemoveTask("t2") },
			removes: []string{"remove t2 w2"}, loads: []int{1, 0, 1},
		},
		{
			name:    "tasks updated: the one left out is stopped",
			runs:    [3]string{"t1", "t2", "t3"},
			prepare: func(f *fleet) { _ = f.UpdateTasks([]task{{Name: "t1", Instances: 1}, {Name: "t3", Instances: 1}}) },
			removes: []string{"remove t2 w2"}, loads: []int{1, 0, 1},
		},
		{
			name:    "no tasks at all: everything is stopped",
			runs:    [3]string{"t1", "t2", "t3"},
			prepare: func(f *fleet) { _ = f.UpdateTasks(nil) },
			removes: []string{"remove t1 w1", "remove t2 w2", "remove t3 w3"}, loads: []int{0, 0, 0},
		},
		{
			name:    "three instances go to three workers",
			prepare: func(f *fleet) { _ = f.UpdateTasks([]task{{Name: "multi", Instances: 3}}) },
			adds:    3, loads: []int{1, 1, 1},
		},
		{
			name: "more instances are added without touching those that run",
			runs: [3]string{"a b c d e f g"},
			prepare: func(f *fleet) {
				_ = f.UpdateTasks(nil)
				for name := range strings.FieldsSeq("a b c d e f g") {
					_ = f.AddTask(name, orchestrator.WithTaskInstances(3))
				}
			},
			adds: 14, loads: []int{7, 7, 7},
		},
		{
			name: "a stale task is removed wherever it runs",
			runs: [3]string{"a b", "a b"},
			prepare: func(f *fleet) {
				_ = f.UpdateTasks(nil)
				_ = f.AddTask("a", two)
			},
			removes: []string{"remove b w1", "remove b w2"}, loads: []int{1, 1, 0},
		},
		{
			name: "one copy of three is too many",
			runs: [3]string{"a", "a", "a"},
			prepare: func(f *fleet) {
				_ = f.UpdateTasks(nil)
				_ = f.AddTask("a", two)
			},
			removes: []string{"remove a *"}, loads: []int{-1, -1, -1},
		},
		{
			name: "two instances of three tasks: two on each",
			prepare: func(f *fleet) {
				for _, name := range names("t", 3) {
					_ = f.AddTask(name, two)
				}
			},
			adds: 6, loads: []int{2, 2, 2},
		},
		{
			name:    "more instances than workers: one on each",
			prepare: func(f *fleet) { _ = f.UpdateTasks([]task{{Name: "multi", Instances: 5}}) },
			adds:    3, loads: []int{1, 1, 1},
		},
	} {
		t.Run(c.name, bothWires(given{workers: 3, expected: 3}, func(t *testing.T, f *fleet) {
			for i, tasks := range c.runs {
				f.run(f.workers[i], tasks)
			}
			if c.prepare != nil {
				c.prepare(f)
			}
			f.term()

			require.Len(t, f.sent(orchestrator.OpAdd), c.adds)
			removes := texts(f.sent(orchestrator.OpRemove))
			require.Len(t, removes, len(c.removes))
			for _, want := range c.removes {
				require.Condition(t, func() bool {
					return slices.ContainsFunc(removes, func(got string) bool { return matches(want, got) })
				}, "%s is not among %v", want, removes)
			}
			for i, want := range c.loads {
				if want >= 0 {
					require.Equal(t, want, f.loads()[i], "on %s", f.workers[i])
				}
			}
			f.freshTerm()
			require.Empty(t, f.writes(), "the next term has nothing to do")
		}))
	}
}

// matches reports whether text equals pattern, in which each * stands for one word.
func matches(pattern, text string) bool {
	p, s := strings.Fields(pattern), strings.Fields(text)
	return len(p) == len(s) && !slices.ContainsFunc(p, func(word string) bool {
		i := slices.Index(p, word)
		return word != "*" && word != s[i]
	})
}

// A worker that cannot be listed gets no tasks. The others share its tasks: at once if
// silence means loss, as in earlier libraries, otherwise once it is lost.
func TestBehaviour_ListFails(t *testing.T) {
	for name, fail := range map[string]func(*fleet){
		"with an error":          func(f *fleet) { f.refuse(orchestrator.OpList, "w2", "", errors.New("some error")) },
		"until its context ends": func(f *fleet) { f.Hang("w2") },
		"for ever":               func(f *fleet) { f.Stick("w2") },
	} {
		t.Run(name+", and silent is lost", bothWires(given{workers: 3, opts: options{orchestrator.WithGracePeriod(0)}}, func(t *testing.T, f *fleet) {
			fail(f)
			f.expect(3)
			f.failingTerm()
			time.Sleep(timeout) // until the call has failed
			f.failingTerm()
			require.Equal(t, []int{2, 0, 1}, byLoad(f.loads()))
			require.Zero(t, f.loads()[1])
		}))
		t.Run(name+", and silent is not empty", bothWires(given{workers: 3}, func(t *testing.T, f *fleet) {
			fail(f)
			f.expect(3)
			began := time.Now()
			for time.Since(began) < 3*timeout {
				f.failingTerm()
				if time.Since(began) < 3*timeout {
					require.Equal(t, []int{0, 0, 0}, f.loads(), "w2 may run anything")
				}
				time.Sleep(time.Second)
			}
			f.failingTerm()
			time.Sleep(time.Second)
			f.failingTerm() // the last call began before the grace period ended
			require.Zero(t, f.loads()[1])
			f.requireAllRun()
		}))
	}
}

// byLoad puts the higher of the first and the last load first.
func byLoad(loads []int) []int {
	if loads[0] < loads[2] {
		loads[0], loads[2] = loads[2], loads[0]
	}
	return loads
}

// A start or stop that fails is in the error of the term.
func TestBehaviour_WritesFail(t *testing.T) {
	for _, op := range []orchestrator.Op{orchestrator.OpAdd, orchestrator.OpRemove} {
		t.Run(op.String(), bothWires(given{workers: 1}, func(t *testing.T, f *fleet) {
			f.run("w1", "stale")
			f.expect(1)
			f.refuse(op, "", "", errBoom)
			require.ErrorIs(t, f.NextTerm(t.Context()), errBoom)
		}))
	}
}

func TestBehaviour_StatsCountWorkers(t *testing.T) {
	inBubble(t, given{workers: 2}, func(t *testing.T, f *fleet) {
		f.term()
		require.Equal(t, orchestrator.WorkerStats{Answering: 2}, f.LastPlan().Stats.Workers)
		require.Equal(t, []orchestrator.TermStats{f.LastPlan().Stats}, f.terms.all())
	})
}

// A worker joins: one term makes as few moves as possible, and later ones only list.
// Earlier libraries took up to 120 terms and ten times as many moves, or left the new
// worker empty forever.
func TestBaseline_AWorkerJoins(t *testing.T) {
	for _, c := range []struct{ tasks, workers, moves int }{
		{100, 4, 20},
		{1000, 10, 90},
		{100, 10, 9},
		{101, 4, 20},
	} {
		t.Run(fmt.Sprintf("%d on %d", c.tasks, c.workers), bothWires(given{workers: c.workers, running: c.tasks}, func(t *testing.T, f *fleet) {
			require.LessOrEqual(t, spread(f.loads()), 1, "even in one term")
			f.join("new")

			f.freshTerm()
			require.LessOrEqual(t, spread(f.loads()), 1)
			require.Len(t, f.moves(), c.moves)
			require.Len(t, f.sent(orchestrator.OpAdd), c.moves)
			require.Len(t, f.sent(orchestrator.OpRemove), c.moves)
			require.Equal(t, c.moves, f.LastPlan().Stats.Adds)
			require.Equal(t, c.moves, f.LastPlan().Stats.LowerBound)

			f.freshTerm()
			require.Empty(t, f.writes())
			require.Len(t, f.lists(), c.workers+1)
			f.requireAllRun()
			f.requireNeverTwice()
		}))
	}
}

// A fifth worker joins 101 tasks on 4. An earlier library ended with 17 to 21 tasks on
// each. Here one term makes any start even.
func TestBaseline_EvenFromAnyStart(t *testing.T) {
	for _, n := range []int{1, 2, 5, 19, 99, 100, 101, 102, 103} {
		t.Run(fmt.Sprint(n), bubble(given{workers: 5, expected: n}, func(t *testing.T, f *fleet) {
			for i, name := range names("t", n) { // piled up on the first ones
				f.run(f.workers[(i*i)%5%3], name)
			}
			f.term()
			require.LessOrEqual(t, spread(f.loads()), 1)
			f.requireSettled()
		}))
	}
}

// One worker hangs on every Add, which costs at most one timeout a term. Of the tasks
// that it did not start, one is tried there again. Two terms later all run elsewhere. An
// earlier library waited for 25 timeouts in a row.
func TestBaseline_OneWorkerHangsOnAdd(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "w2", "", hang))
		f.expect(100)
		took, err := f.timedTerm()
		require.Error(t, err)
		require.InDelta(t, timeout, took, float64(timeout/1000), "one timeout")
		require.Equal(t, []int{25, 0, 25, 25}, f.loads(), "nobody else is held up")

		_ = f.NextTerm(t.Context())
		require.LessOrEqual(t, f.missing(), 1)
		took, err = f.timedTerm()
		require.NoError(t, err)
		require.Zero(t, took)
		f.requireAllRun()
		for range 20 {
			took, _ = f.timedTerm()
			require.LessOrEqual(t, took, timeout)
		}
	})
}

// The calls also ignore their context. No further call to the worker delays a term, and
// the tasks that it may run are held until it is lost.
func TestBaseline_OneWorkerHangsOnAddForEver(t *testing.T) {
	onBothWires(t, given{workers: 4}, func(t *testing.T, f *fleet) {
		f.intercept(on(orchestrator.OpAdd, "w2", "", func(context.Context) error {
			f.Stick("w2")
			return nil
		}))
		f.expect(100)
		took, err := f.timedTerm()
		require.Error(t, err)
		require.Equal(t, timeout, took)
		tried := len(f.addsTo("w2"))

		took, err = f.timedTerm()
		require.ErrorIs(t, err, orchestrator.ErrSilent)
		require.Zero(t, took)
		running := 0
		for _, n := range f.loads() {
			running += n
		}
		require.Equal(t, 100-tried, running, "all but what was on its way to w2")
		require.Equal(t, tried, f.LastPlan().Stats.Instances.Held)
		require.Equal(t, 1, f.LastPlan().Stats.Workers.Stuck)

		time.Sleep(3 * timeout)
		f.failingTerm()
		f.requireAllRun()
	})
}
