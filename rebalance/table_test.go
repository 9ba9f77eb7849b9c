package rebalance_test

// The cases that have a name.

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

const (
	none    = rebalance.None
	noLimit = rebalance.NoLimit
)

// fleet is a problem in which the tasks are dealt out in turn to all workers
// but the last few, which hold nothing.
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

// Both of the first workers run one task too many: which copies of x and y go
// must be chosen together.
func TestP3_DropsAreChosenTogether(t *testing.T) {
	t.Parallel()
	const x, y, a, b, c, d = 0, 1, 2, 3, 4, 5
	plan := planned(t, &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1, 1, 1},
		States:   make([]rebalance.State, 3),
		Running:  [][]int32{{x, a, b}, {x, y, c}, {y, d}},
		MaxMoves: noLimit,
	})
	require.Zero(t, plan.Adds)
	require.ElementsMatch(t, []rebalance.Change{
		{Task: x, From: 0, To: none, Reason: rebalance.Surplus},
		{Task: y, From: 1, To: none, Reason: rebalance.Surplus},
	}, plan.Changes)
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
			name: "a quarantined worker gains what is missing",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1}, States: states{quarantined, open}, Running: make([][]int32, 2), MaxGain: []int32{1, 0}, MaxMoves: 0,
			},
			changes: changes{
				{0, none, 0, rebalance.Missing},
				{1, none, 1, rebalance.Missing},
				{2, none, 1, rebalance.Missing},
				{3, none, 1, rebalance.Missing},
			},
		},
		{
			name: "a quarantined worker gains nothing forbidden to it",
			pr: rebalance.Problem{
				Want: []int32{1, 1}, States: states{quarantined, open}, Running: make([][]int32, 2), MaxGain: []int32{2, 0}, Forbidden: pairs{{0, 0}}, MaxMoves: noLimit,
			},
			changes: changes{{0, none, 1, rebalance.Missing}, {1, none, 0, rebalance.Missing}},
		},
		{
			name: "a quarantined worker gains what drains rather than what stays",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1}, States: states{quarantined, open, draining}, Running: [][]int32{nil, {0, 1}, {2}}, MaxGain: []int32{1, 0, 0}, MaxMoves: noLimit,
			},
			changes: changes{{2, 2, 0, rebalance.Drain}},
		},
		{
			name: "a quarantined worker gains from the fullest worker, and no pinned copy",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1}, States: states{open, open, quarantined}, Running: [][]int32{{0, 1, 2}, {3, 4}, nil},
				Pinned: []int32{2, 0, 0}, MaxGain: []int32{0, 0, 1}, MaxMoves: noLimit,
			},
			changes: changes{{0, 0, 2, rebalance.Rebalance}},
		},
		{
			name: "a quarantined worker gains nothing that makes the spread no better",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1}, States: states{open, quarantined}, Running: [][]int32{{0, 1}, {2}}, MaxGain: []int32{0, 5}, MaxMoves: noLimit,
			},
		},
		{
			name: "without an open worker, quarantined ones gain what is missing",
			pr: rebalance.Problem{
				Want: []int32{2, 1, 1}, States: states{quarantined, quarantined}, Running: [][]int32{{0, 1}, nil}, MaxGain: []int32{3, 1}, MaxMoves: noLimit,
			},
			changes:  changes{{2, none, 1, rebalance.Missing}},
			unplaced: unplaced{{0, 1, none, rebalance.NoOpenWorker}},
		},
		{
			name: "late moves come last",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1, 1}, States: states{open, open, draining}, Running: [][]int32{{0, 1, 2, 3, 5}, nil, {4}},
				MoveLast: pairs{{0, 0}, {4, 2}}, MaxMoves: 1,
			},
			changes: changes{{1, 0, 1, rebalance.Rebalance}},
		},
		{
			name: "late moves use what is left",
			pr: rebalance.Problem{
				Want: []int32{1, 1, 1, 1, 1, 1}, States: states{open, open, draining}, Running: [][]int32{{0, 1, 2, 3}, nil, {4, 5}},
				MoveLast: pairs{{0, 0}, {4, 2}}, MaxMoves: 2,
			},
			changes: changes{{5, 2, 1, rebalance.Drain}, {4, 2, 1, rebalance.Drain}},
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

func TestP2_AQuarantinedWorkerKeepsItsShareAndLosesTheRest(t *testing.T) {
	t.Parallel()
	plan := planned(t, &rebalance.Problem{
		Want:     []int32{1, 1, 1, 1},
		States:   []rebalance.State{rebalance.Quarantined, rebalance.Open},
		Running:  [][]int32{{0, 1, 2, 3}, nil},
		MaxMoves: noLimit,
	})
	require.Len(t, plan.Changes, 2)
	require.Equal(t, 2, plan.Moves)
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

// daemons is a fleet that runs nothing yet, and some of whose tasks shall run
// everywhere.
func daemons(tasks, workers, daemons int) *rebalance.Problem {
	pr := without(fleet(tasks+daemons, 1, workers, workers), workers)
	for t := range daemons {
		pr.Want[t] = int32(workers)
	}
	return pr
}

// Problems that were planned wrongly once.
func TestP_OnceWrong(t *testing.T) {
	t.Parallel()
	const quarantined = rebalance.Quarantined
	open := func(n int) []rebalance.State { return make([]rebalance.State, n) }
	for name, pr := range map[string]rebalance.Problem{
		"a lower bound above the minimum": {
			Want: []int32{1, 2, 4, 1}, States: open(4), Running: [][]int32{{3, 1}, {0, 1}, {}, {}}, MaxMoves: noLimit,
		},
		"uneven with forbidden pairs": {
			Want: []int32{1, 2, 2, 3}, States: open(4), Running: [][]int32{{}, {1, 0}, {0}, {1, 2}},
			Forbidden: []rebalance.Pair{{Task: 2, Worker: 1}, {Task: 0, Worker: 1}, {Task: 3, Worker: 1}}, MaxMoves: noLimit,
		},
		"an extra unit for a worker with more pinned copies than its share": {
			Want:    []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
			States:  []rebalance.State{0, quarantined, quarantined, 0},
			Running: [][]int32{nil, {2, 4, 5, 6, 7, 9}, {1, 3, 6, 7, 8, 9}, {8, 7}}, Pinned: []int32{0, 6, 4, 2}, MaxMoves: noLimit,
		},
		"a quarantined worker that cannot lose what is above its share": {
			Want:    []int32{1, 3, 3, 3, 3, 2, 3},
			States:  []rebalance.State{quarantined, quarantined, 0, quarantined},
			Running: [][]int32{{1, 2, 3, 4, 5, 6}, {0, 2, 4}, {1, 2, 3, 4, 5, 6}, {1, 3, 6}}, MaxGain: []int32{0, 1, 0, 1}, MaxMoves: noLimit,
		},
		"a quarantined worker that gains beyond its share": {
			Want: []int32{2, 2, 2, 1, 2}, States: []rebalance.State{quarantined, quarantined, quarantined, quarantined, 0, quarantined},
			Running: make([][]int32, 6), MaxGain: []int32{2, 1, 1, 1, 0, 4}, MaxMoves: noLimit,
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
			MaxMoves: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			planned(t, &pr)
		})
	}
}

// Every problem of a few workers and tasks, with every state of the workers
// where there are few enough.
func TestP_EverySmallProblem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name                   string
		workers, tasks, states int
	}{
		{"3x3 open", 3, 3, 1}, {"2x4 open", 2, 4, 1}, {"4x2 open", 4, 2, 1}, {"2x2 any", 2, 2, 4}, {"3x2 any", 3, 2, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var used rebalance.Planner
			pr := &rebalance.Problem{
				Want: make([]int32, c.tasks), States: make([]rebalance.State, c.workers), Running: make([][]int32, c.workers),
				MaxMoves: noLimit,
			}
			digits := make([]int, c.tasks+2*c.workers) // wants, states, lists
			for next := true; next; {
				for i := range pr.Want {
					pr.Want[i] = int32(digits[i])
				}
				for w := range c.workers {
					pr.States[w] = rebalance.State(digits[c.tasks+w])
					pr.Running[w] = pr.Running[w][:0]
					for i := range c.tasks {
						if digits[c.tasks+c.workers+w]>>i&1 != 0 {
							pr.Running[w] = append(pr.Running[w], int32(i))
						}
					}
				}
				if _, err := examine(pr, &used); err != nil {
					t.Fatalf("%v\n%#v", err, *pr)
				}
				next = false
				for i := range digits {
					limit := c.workers + 2
					if i >= c.tasks {
						limit = c.states
					}
					if i >= c.tasks+c.workers {
						limit = 1 << c.tasks
					}
					if digits[i]++; digits[i] < limit {
						next = true
						break
					}
					digits[i] = 0
				}
			}
		})
	}
}
