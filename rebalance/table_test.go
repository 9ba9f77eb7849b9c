package rebalance_test

// Single problems whose plans are known, and problems that were planned wrongly once.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

const (
	none    = rebalance.None
	noLimit = rebalance.NoLimit
)

// fleet returns a problem in which the tasks run in turn on all workers but the last
// few, which run nothing.
func fleet(tasks, copies, workers, fresh int) *rebalance.Problem {
	pr := &rebalance.Problem{
		Want:     make([]int32, tasks),
		States:   make([]rebalance.State, workers+fresh),
		Running:  make([][]int32, workers+fresh),
		MaxMoves: noLimit,
	}
	for t := range tasks {
		pr.Want[t] = int32(copies)
		for c := range copies {
			w := (t*copies + c) % workers
			pr.Running[w] = append(pr.Running[w], int32(t))
		}
	}
	return pr
}

// planned examines the problem and returns its plan.
func planned(t *testing.T, pr *rebalance.Problem) rebalance.Plan {
	t.Helper()
	_, err := examine(pr, new(rebalance.Planner))
	require.NoError(t, err)
	plan, err := new(rebalance.Planner).Plan(pr)
	require.NoError(t, err)
	return plan
}

func TestP3_AWorkerThatJoinsGetsItsShareAndNothingElseMoves(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                     string
		tasks, copies, workers   int
		moves, smallest, largest int
	}{
		{"100x4", 100, 1, 4, 20, 20, 20},
		{"101x4", 101, 1, 4, 20, 20, 21},
		{"100x10", 100, 1, 10, 9, 9, 10},
		{"1000x10", 1000, 1, 10, 90, 90, 91},
		{"100x4 in three copies", 100, 3, 4, 60, 60, 60},
		{"3x3", 3, 1, 3, 0, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			pr := fleet(c.tasks, c.copies, c.workers, 1)
			plan, err := new(rebalance.Planner).Plan(pr)
			require.NoError(t, err)
			require.Equal(t, c.moves, plan.Moves)
			require.Equal(t, c.moves, plan.Adds)
			require.Equal(t, c.moves, plan.LowerBound)
			require.Len(t, plan.Changes, c.moves)
			for _, change := range plan.Changes {
				require.Equal(t, int32(c.workers), change.To, "%+v", change)
			}
			o, err := carryOut(read(pr), plan)
			require.NoError(t, err)
			for _, load := range o.loads {
				require.GreaterOrEqual(t, load, c.smallest)
				require.LessOrEqual(t, load, c.largest)
			}
		})
	}
}

func TestP_NamedCases(t *testing.T) {
	t.Parallel()
	const open, draining, frozen, quarantined = rebalance.Open, rebalance.Draining, rebalance.Frozen, rebalance.Quarantined
	type (
		states   = []rebalance.State
		changes  = []rebalance.Change
		unplaced = []rebalance.Unplaced
		pairs    = []rebalance.Pair
	)
	for _, c := range []struct {
		name     string
		pr       rebalance.Problem
		changes  changes
		unplaced unplaced
	}{
		{
			name: "drops are chosen together, because both of the first workers run one task too many",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1, 1}, States: states{open, open, open}, Running: [][]int32{{0, 2, 3}, {0, 1, 4}, {1, 5}}, MaxMoves: noLimit,
			},
			changes: changes{{0, 0, none, rebalance.Surplus}, {1, 1, none, rebalance.Surplus}},
		},
		{
			name: "every change has its reason",
			pr: rebalance.Problem{
				Want: []int32{1, 0, 1, 1, 1, 1, 1, 3}, States: states{open, open, draining},
				Running: [][]int32{{0, 1, 3, 4, 5, 7}, {0, 7}, {6}}, MaxMoves: noLimit,
			},
			changes: changes{
				{2, none, 1, rebalance.Missing},
				{6, 2, 1, rebalance.Drain},
				{1, 0, none, rebalance.Unexpected},
				{0, 0, none, rebalance.Surplus},
			},
			unplaced: unplaced{{7, 1, none, rebalance.NoOtherWorker}},
		},
		{
			name: "two wanted copies answer, and stay beside a frozen one",
			pr: rebalance.Problem{
				Want: []int32{2}, States: states{frozen, open, open, open}, Running: [][]int32{{0}, {0}, {0}, nil}, MaxMoves: noLimit,
			},
		},
		{
			name: "a third copy that answers stops",
			pr: rebalance.Problem{
				Want: []int32{2}, States: states{frozen, open, open, open}, Running: [][]int32{{0}, {0}, {0}, {0}}, MaxMoves: noLimit,
			},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name: "a quarantined worker keeps its share and loses the rest",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1}, States: states{quarantined, open}, Running: [][]int32{{0, 1, 2, 3}, nil}, MaxMoves: noLimit,
			},
			changes: changes{{0, 0, 1, rebalance.Rebalance}, {1, 0, 1, rebalance.Rebalance}},
		},
		{name: "nothing at all", pr: rebalance.Problem{MaxMoves: noLimit}},
		{name: "workers without tasks", pr: rebalance.Problem{States: states{open, open}, Running: make([][]int32, 2), MaxMoves: noLimit}},
		{
			name:     "tasks without workers",
			pr:       rebalance.Problem{Want: []int32{2, 0, 1}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 2, none, rebalance.NoOpenWorker}, {2, 1, none, rebalance.NoOpenWorker}},
		},
		{
			name:    "a task that nobody runs starts",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open}, Running: [][]int32{nil}, MaxMoves: noLimit},
			changes: changes{{0, none, 0, rebalance.Missing}},
		},
		{
			name:     "more copies than workers",
			pr:       rebalance.Problem{Want: []int32{3}, States: states{open, open}, Running: [][]int32{{0}, nil}, MaxMoves: noLimit},
			changes:  changes{{0, none, 1, rebalance.Missing}},
			unplaced: unplaced{{0, 1, none, rebalance.NoOtherWorker}},
		},
		{
			name:    "unexpected copies stop, also on draining and quarantined workers, but not on frozen ones",
			pr:      rebalance.Problem{Want: []int32{0}, States: states{open, draining, frozen, quarantined}, Running: [][]int32{{0}, {0}, {0}, {0}}, MaxMoves: 0},
			changes: changes{{0, 0, none, rebalance.Unexpected}, {0, 1, none, rebalance.Unexpected}, {0, 3, none, rebalance.Unexpected}},
		},
		{
			name: "a task listed twice counts once",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open, open}, Running: [][]int32{{0, 0, 0}, {1}}, MaxMoves: noLimit},
		},
		{
			name:    "an unexpected task listed twice stops once",
			pr:      rebalance.Problem{Want: []int32{0}, States: states{open}, Running: [][]int32{{0, 0}}, MaxMoves: noLimit},
			changes: changes{{0, 0, none, rebalance.Unexpected}},
		},
		{
			name:    "a draining worker ends empty",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Running: [][]int32{{0}, nil}, MaxMoves: noLimit},
			changes: changes{{0, 0, 1, rebalance.Drain}},
		},
		{
			name:     "a drain waits for an open worker",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining}, Running: [][]int32{{0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.NoOpenWorker}},
		},
		{
			name:     "a drain waits for another worker",
			pr:       rebalance.Problem{Want: []int32{2}, States: states{draining, open}, Running: [][]int32{{0}, {0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.NoOtherWorker}},
		},
		{
			name:     "a drain waits for a pair that is forbidden",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Running: [][]int32{{0}, nil}, Forbidden: pairs{{0, 1}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, 0, rebalance.NoAllowedWorker}},
		},
		{
			name:     "a missing copy without an open worker beside one that waits",
			pr:       rebalance.Problem{Want: []int32{2}, States: states{draining}, Running: [][]int32{{0}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.NoOpenWorker}, {0, 1, 0, rebalance.NoOpenWorker}},
		},
		{
			name:    "a surplus copy leaves the draining worker",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open, draining}, Running: [][]int32{{0}, {0}}, MaxMoves: noLimit},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name: "a frozen copy is not started elsewhere",
			pr:   rebalance.Problem{Want: []int32{1}, States: states{frozen, open}, Running: [][]int32{{0}, nil}, MaxMoves: noLimit},
		},
		{
			name: "a frozen copy stops none that answers",
			pr:   rebalance.Problem{Want: []int32{1}, States: states{frozen, open}, Running: [][]int32{{0}, {0}}, MaxMoves: noLimit},
		},
		{
			name:    "a frozen copy beside two that answer",
			pr:      rebalance.Problem{Want: []int32{1, 1}, States: states{frozen, open, open}, Running: [][]int32{{0}, {0, 1}, {0}}, MaxMoves: noLimit},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name:     "a quarantined worker gains nothing",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{quarantined}, Running: [][]int32{nil}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.NoOpenWorker}},
		},
		{
			name: "a quarantined worker alone keeps everything",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{quarantined}, Running: [][]int32{{0, 1}}, MaxMoves: noLimit},
		},
		{
			name:     "a task forbidden everywhere",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{open, open}, Running: make([][]int32, 2), Forbidden: pairs{{0, 1}, {0, 0}, {0, 1}}, MaxMoves: noLimit},
			unplaced: unplaced{{0, 1, none, rebalance.NoAllowedWorker}},
		},
		{
			name:    "a task forbidden on one",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open, open}, Running: make([][]int32, 2), Forbidden: pairs{{0, 0}}, MaxMoves: noLimit},
			changes: changes{{0, none, 1, rebalance.Missing}},
		},
		{
			name: "a forbidden copy that is there stays",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open, open}, Running: [][]int32{{0}, {1}}, Forbidden: pairs{{0, 0}}, MaxMoves: noLimit},
		},
		{
			name:    "no budget: what is missing starts, what is too much stops, nothing moves",
			pr:      rebalance.Problem{Want: []int32{1, 1, 1, 1, 1}, States: states{open, open}, Running: [][]int32{{0, 1, 2, 3}, {0}}, MaxMoves: 0},
			changes: changes{{0, 0, none, rebalance.Surplus}, {4, none, 1, rebalance.Missing}},
		},
		{
			name:    "no budget: a missing copy overfills a worker",
			pr:      rebalance.Problem{Want: []int32{2, 1, 1, 1}, States: states{open, open}, Running: [][]int32{{1, 2, 3}, {0}}, MaxMoves: 0},
			changes: changes{{0, none, 0, rebalance.Missing}},
		},
		{
			name: "a pinned copy does not move for an even spread",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1}, States: states{open, open}, Running: [][]int32{{0, 1, 2, 3}, nil}, Pinned: []int32{3, 0}, MaxMoves: noLimit,
			},
			changes: changes{{0, 0, 1, rebalance.Rebalance}},
		},
		{
			name: "the rest is level beside a worker with more pinned copies",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1, 1}, States: states{open, open, open}, Running: [][]int32{{0, 1, 2, 3}, {4, 5}, nil}, Pinned: []int32{4, 0, 0},
				MaxMoves: noLimit,
			},
			changes: changes{{4, 1, 2, rebalance.Rebalance}},
		},
		{
			name:    "a surplus copy that is not pinned stops",
			pr:      rebalance.Problem{Want: []int32{1}, States: states{open, open}, Running: [][]int32{{0}, {0}}, Pinned: []int32{0, 1}, MaxMoves: noLimit},
			changes: changes{{0, 0, none, rebalance.Surplus}},
		},
		{
			name: "a pinned copy stops if all of them are, on the fullest worker",
			pr: rebalance.Problem{
				Want: []int32{1, 1}, States: states{open, open}, Running: [][]int32{{0}, {0, 1}}, Pinned: []int32{1, 2}, MaxMoves: noLimit,
			},
			changes: changes{{0, 1, none, rebalance.Surplus}},
		},
		{
			name:    "an unexpected copy stops even if it is pinned",
			pr:      rebalance.Problem{Want: []int32{0}, States: states{open, draining}, Running: [][]int32{{0}, {0}}, Pinned: []int32{1, 1}, MaxMoves: noLimit},
			changes: changes{{0, 0, none, rebalance.Unexpected}, {0, 1, none, rebalance.Unexpected}},
		},
		{
			name: "a drain waits for a pinned copy, which uses no budget",
			pr: rebalance.Problem{
				Want: []int32{1, 1}, States: states{draining, open}, Running: [][]int32{{0, 1}, nil}, Pinned: []int32{1, 0}, MaxMoves: 1,
			},
			changes:  changes{{0, 0, 1, rebalance.Drain}},
			unplaced: unplaced{{1, 1, 0, rebalance.CopyPinned}},
		},
		{
			name:     "a pinned copy that drains counts as one of its task",
			pr:       rebalance.Problem{Want: []int32{1}, States: states{draining, open}, Running: [][]int32{{0}, {0}}, Pinned: []int32{1, 0}, MaxMoves: noLimit},
			changes:  changes{{0, 1, none, rebalance.Surplus}},
			unplaced: unplaced{{0, 1, 0, rebalance.CopyPinned}},
		},
		{
			name: "a task that comes twice is pinned if its last place is",
			pr:   rebalance.Problem{Want: []int32{1, 1}, States: states{open, open}, Running: [][]int32{{0, 1, 0, 1}, nil}, Pinned: []int32{2, 0}, MaxMoves: noLimit},
		},
		{
			name: "drains come first",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1}, States: states{open, open, draining},
				Running: [][]int32{{0, 1, 2, 3}, nil, {4}}, MaxMoves: 1,
			},
			changes: changes{{4, 2, 1, rebalance.Drain}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			plan := planned(t, &c.pr)
			require.ElementsMatch(t, c.changes, plan.Changes)
			require.ElementsMatch(t, c.unplaced, plan.Unplaced)
		})
	}
}

// The starts of a plan, and their lower bound.
func TestP8_TheLowerBoundIsBesideTheStarts(t *testing.T) {
	t.Parallel()
	type pairs = []rebalance.Pair
	for _, c := range []struct {
		name                  string
		pr                    rebalance.Problem
		adds, bound, deferred int
	}{
		{
			name: "one is missing, and two are too many where they are",
			pr:   rebalance.Problem{Want: ones(5), Running: [][]int32{{0, 1, 2, 3}, nil, nil}, MaxMoves: noLimit},
			adds: 3, bound: 3,
		},
		{
			name: "the bound is that of the plan without the deferred moves",
			pr:   rebalance.Problem{Want: ones(5), Running: [][]int32{{0, 1, 2, 3}, nil, nil}},
			adds: 1, bound: 1, deferred: 2,
		},
		{
			name: "worker 1 may run only tasks 4 and 5, so the spread ends uneven",
			pr: rebalance.Problem{
				Want: ones(6), Running: [][]int32{{0, 1, 2, 3, 4}, nil}, Forbidden: pairs{{0, 1}, {1, 1}, {2, 1}, {3, 1}},
			},
			adds: 1, bound: 1, deferred: 1,
		},
		{
			name: "what is missing goes to worker 3, which may take little else", // and 0 or 4 moves to worker 2
			pr: rebalance.Problem{
				Want: ones(5), Running: [][]int32{{2}, {0, 4}, nil, nil, {3}}, Forbidden: pairs{{0, 3}, {3, 3}, {4, 3}}, MaxMoves: noLimit,
			},
			adds: 2, bound: 2,
		},
		{
			name: "worker 4 joins, and tasks 10 to 19 may only run on even workers",
			pr:   *halfPool(),
			adds: 4, bound: 4,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.pr.States = make([]rebalance.State, len(c.pr.Running))
			plan := planned(t, &c.pr)
			require.Equal(t, []int{c.adds, c.bound, c.deferred}, []int{plan.Adds, plan.LowerBound, plan.Deferred})
		})
	}
}

// ones wants one copy of each of some tasks.
func ones(tasks int) []int32 { return slices.Repeat([]int32{1}, tasks) }

// halfPool is even on four workers. Tasks 0 to 9 may run anywhere, 10 to 19 only on even
// workers, and worker 4 joins.
func halfPool() *rebalance.Problem {
	pr := &rebalance.Problem{Want: ones(20), Running: make([][]int32, 5), MaxMoves: noLimit}
	for k := range int32(20) {
		w := 1 + 2*(k%2)
		if k >= 10 {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: k, Worker: 1}, rebalance.Pair{Task: k, Worker: 3})
			w = 2 * (k % 2)
		}
		pr.Running[w] = append(pr.Running[w], k)
	}
	return pr
}

// A task that runs everywhere costs no more starts than it has copies, beside
// tasks that fill the workers up to their shares.
func TestP3_DaemonsAmongSingleCopies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tasks, workers, daemons int }{{100, 4, 1}, {101, 4, 2}, {30, 10, 3}, {200, 20, 1}, {203, 20, 5}} {
		t.Run(fmt.Sprintf("%dx%d, %d daemons", c.tasks, c.workers, c.daemons), func(t *testing.T) {
			t.Parallel()
			pr := daemons(c.tasks, c.workers, c.daemons)
			starts := c.tasks + c.daemons*c.workers
			plan := planned(t, pr)
			require.Equal(t, starts, plan.Adds)
			require.Equal(t, starts, plan.LowerBound)
			require.Empty(t, plan.Unplaced)
		})
	}
}

// daemons returns a fleet that runs nothing yet. Some of its tasks are wanted on every
// worker.
func daemons(tasks, workers, daemons int) *rebalance.Problem {
	pr := without(fleet(tasks+daemons, 1, workers, workers), workers)
	for t := range daemons {
		pr.Want[t] = int32(workers)
	}
	return pr
}

// Problems that were planned wrongly once, some with one budget only.
func TestP_OnceWrong(t *testing.T) {
	t.Parallel()
	const quarantined = rebalance.Quarantined
	open := func(n int) []rebalance.State { return make([]rebalance.State, n) }
	for name, pr := range map[string]rebalance.Problem{
		"a lower bound above the minimum": {
			Want: []int32{1, 2, 4, 1}, States: open(4), Running: [][]int32{{3, 1}, {0, 1}, {}, {}},
		},
		"uneven with forbidden pairs": {
			Want: []int32{1, 2, 2, 3}, States: open(4), Running: [][]int32{{}, {1, 0}, {0}, {1, 2}},
			Forbidden: []rebalance.Pair{{Task: 2, Worker: 1}, {Task: 0, Worker: 1}, {Task: 3, Worker: 1}},
		},
		"an extra unit for a worker with more pinned copies than its share": {
			Want:    []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
			States:  []rebalance.State{0, quarantined, quarantined, 0},
			Running: [][]int32{nil, {2, 4, 5, 6, 7, 9}, {1, 3, 6, 7, 8, 9}, {8, 7}}, Pinned: []int32{0, 6, 4, 2},
		},
		// A copy that was to move, was taken back and was dropped again moved twice on
		// paper, and another copy of its task was stopped in its place.
		"a copy that is dropped again": {
			Want:   []int32{1, 0, 0, 3, 0, 0, 1, 2, 0, 0, 2, 1, 0, 2, 3, 2, 1, 1, 0, 1, 0, 3, 0, 0, 1, 0, 3, 0, 3, 1, 1, 3, 0, 1, 1, 1, 3, 1},
			States: []rebalance.State{0, rebalance.Draining, 0, 0, 0, 0},
			Running: [][]int32{
				nil, nil, nil,
				{11, 19, 28, 31, 3, 7, 10, 13, 14, 21, 24, 26, 29, 36},
				{28, 31, 30, 33, 34, 37, 3, 14, 15, 21, 35, 0, 26, 36},
				{17, 28, 31, 3, 6, 7, 10, 13, 14, 15, 16, 21, 26, 36},
			},
			Pinned: []int32{0, 0, 0, 10, 8, 11},
			Forbidden: []rebalance.Pair{
				{Task: 23, Worker: 3},
				{Task: 27, Worker: 5},
				{Task: 3, Worker: 0},
				{Task: 10, Worker: 0},
				{Task: 11, Worker: 0},
				{Task: 14, Worker: 0},
				{Task: 26, Worker: 0},
				{Task: 35, Worker: 0},
			},
		},
		"stuck with a budget and a quarantined worker": {
			Want: []int32{1, 1, 1, 2, 1, 1, 2, 1, 1, 1}, States: []rebalance.State{quarantined, 0, 0},
			Running: [][]int32{{3, 5, 6, 7, 8, 9}, nil, nil},
			Forbidden: []rebalance.Pair{
				{Task: 0, Worker: 1},
				{Task: 1, Worker: 1},
				{Task: 2, Worker: 1},
				{Task: 3, Worker: 1},
				{Task: 4, Worker: 1},
				{Task: 5, Worker: 1},
				{Task: 6, Worker: 1},
				{Task: 7, Worker: 1},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for pr.MaxMoves = noLimit; pr.MaxMoves < 12; pr.MaxMoves++ {
				planned(t, &pr)
			}
		})
	}
}
