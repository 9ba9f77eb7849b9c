package rebalance_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

// TestP15_LabelsDivideTheZones tests that the zones are even class by class: one half of
// the first zone runs tasks with a label, and the other half shares the rest evenly with
// the second zone.
func TestP15_LabelsDivideTheZones(t *testing.T) {
	pr := &rebalance.Problem{MaxMoves: rebalance.NoLimit, May: [][]int32{{1}, nil}}
	for w := range 30 {
		kind, zone := int32(0), int32(0)
		switch {
		case w < 10:
			kind = 1
		case w >= 20:
			zone = 1
		}
		pr.States, pr.Running = append(pr.States, rebalance.Open), append(pr.Running, nil)
		pr.Zone, pr.Kind = append(pr.Zone, zone), append(pr.Kind, kind)
	}
	for task := range 2001 {
		pr.Want, pr.Class = append(pr.Want, 1), append(pr.Class, int32(min(task/1000, 1)))
	}
	pr.Want[2000], pr.Class[2000] = 2, 1
	r := checked(t, pr)
	for w, n := range r.loads {
		if w < 10 && n != 100 || w >= 10 && (n < 50 || n > 51) {
			t.Errorf("worker %d runs %d tasks", w, n)
		}
	}
}

// afterPlan returns the problem after a plan, which it checks.
func afterPlan(t *testing.T, pr *rebalance.Problem) *rebalance.Problem {
	t.Helper()
	return checked(t, pr).problem()
}

// TestP15_AZoneJoins tests that a zone that joins takes what it needs and no more moves: each of
// the other workers gives an equal part. Some labels bind, but not for these tasks.
func TestP15_AZoneJoins(t *testing.T) {
	const workers, tasks = 40, 3000
	for instances := int32(1); instances <= 3; instances++ {
		for _, labelled := range []bool{false, true} {
			pr := &rebalance.Problem{
				Want: slices.Repeat([]int32{instances}, tasks), States: make([]rebalance.State, workers),
				Running: make([][]int32, workers), Zone: make([]int32, workers), MaxMoves: rebalance.NoLimit,
			}
			for w := range workers {
				pr.Zone[w] = int32(w % 4)
				if w%4 == 0 {
					pr.States[w] = rebalance.Draining
				}
			}
			if labelled {
				pr.Class, pr.Kind, pr.May = make([]int32, tasks), make([]int32, workers), [][]int32{nil, {1}}
				pr.Kind[workers-1] = 1
			}
			pr = afterPlan(t, pr)
			clear(pr.States) // all are open
			plan := checked(t, pr).plan
			if want := int(instances) * tasks / 4; plan.Adds != want {
				t.Errorf("%d instances, labelled %t: %d starts instead of %d", instances, labelled, plan.Adds, want)
			}
		}
	}
}

// TestP15_AZoneIsLost tests that what a lost zone ran starts in the others, and that nothing else
// moves, although the last workers to fill find mostly tasks that they run.
func TestP15_AZoneIsLost(t *testing.T) {
	const workers, tasks = 100, 3333 // so that the zones differ
	pr := &rebalance.Problem{
		Want: slices.Repeat([]int32{3}, tasks), States: make([]rebalance.State, workers),
		Running: make([][]int32, workers), Zone: make([]int32, workers), MaxMoves: rebalance.NoLimit,
	}
	for w := range workers {
		pr.Zone[w] = int32(w % 3)
	}
	pr = afterPlan(t, pr)
	running, zone := pr.Running, pr.Zone
	pr.Running, pr.Zone = nil, nil
	for w, z := range zone {
		if z > 0 {
			pr.Running, pr.Zone = append(pr.Running, running[w]), append(pr.Zone, z)
		}
	}
	pr.States = make([]rebalance.State, len(pr.Running))
	plan := checked(t, pr).plan
	if plan.Adds != tasks || plan.Moves != 0 {
		t.Errorf("%d starts and %d moves instead of %d starts", plan.Adds, plan.Moves, tasks)
	}
}

// TestP13_DefaultCapsMakeWay tests that default caps leave no copy without a place: here the
// limits and the cap of another task need the third worker for it.
func TestP13_DefaultCapsMakeWay(t *testing.T) {
	pr := &rebalance.Problem{
		Want: []int32{2, 2, 2}, States: make([]rebalance.State, 3), Running: make([][]int32, 3),
		Zone: []int32{1, 0, 1}, MaxPerZone: []int32{0, 0, 1}, MaxTasks: []int32{4, 2, 1},
		Class: []int32{1, 2, 1}, Kind: []int32{0, 0, 0}, May: [][]int32{{0}, {0}, {0}, {}}, MaxMoves: rebalance.NoLimit,
	}
	plan := checked(t, pr).plan
	if plan.Adds != 6 || len(plan.Unplaced) > 0 {
		t.Errorf("%d starts, without a place %+v", plan.Adds, plan.Unplaced)
	}
}

// TestP10_ClassesWithoutNumbers tests that no Class means class 0, which may have rules.
func TestP10_ClassesWithoutNumbers(t *testing.T) {
	pr := &rebalance.Problem{
		Want: []int32{1}, States: make([]rebalance.State, 2), Running: make([][]int32, 2),
		Kind: []int32{0, 1}, May: [][]int32{{1}}, MaxMoves: rebalance.NoLimit,
	}
	plan := checked(t, pr).plan
	if len(plan.Changes) != 1 || plan.Changes[0].To != 1 {
		t.Errorf("changes %+v", plan.Changes)
	}
}

// settledZones returns a settled fleet in zones of these sizes.
func settledZones(t *testing.T, p *rebalance.Planner, tasks, copies int, sizes ...int) *rebalance.Problem {
	t.Helper()
	pr := holds(slices.Repeat([]int32{int32(copies)}, tasks), nil)
	pr.Zone = []int32{}
	for zone, size := range sizes {
		joinZone(pr, zone, size)
	}
	live(t, p, pr)
	require.Empty(t, live(t, p, pr).Changes)
	return pr
}

func joinZone(pr *rebalance.Problem, zone, workers int) {
	pr.States, pr.Running = append(pr.States, make([]rebalance.State, workers)...), append(pr.Running, make([][]int32, workers)...)
	pr.Zone = append(pr.Zone, slices.Repeat([]int32{int32(zone)}, workers)...)
}

func TestP13_FirstWorkerOfAZoneMovesItsShare(t *testing.T) {
	var p rebalance.Planner
	pr := settledZones(t, &p, 1000, 3, 10, 10, 10)
	joinZone(pr, 3, 1) // a new zone, or a misspelt one
	require.InDelta(t, 3000/31, live(t, &p, pr).Adds, 1)
	require.Empty(t, live(t, &p, pr).Changes)
}

func TestP13_SilentZoneMovesNothing(t *testing.T) {
	var p rebalance.Planner
	pr := settledZones(t, &p, 300, 3, 10, 10, 10, 5)
	for range 2 {
		for _, s := range []rebalance.State{rebalance.Frozen, rebalance.Open} {
			for w := 10; w < 20; w++ {
				pr.States[w] = s
			}
			require.Zero(t, live(t, &p, pr).Adds, "%v", s)
		}
	}
}

func TestP13_LostZoneComesBack(t *testing.T) {
	var p rebalance.Planner
	pr := settledZones(t, &p, 300, 3, 10, 10, 10)
	without(pr, 10)
	plan := live(t, &p, pr)
	require.Equal(t, []int{300, 0}, []int{plan.Adds, plan.Moves})
	for w, list := range pr.Running {
		require.Len(t, list, 45, "worker %d", w)
	}
	joinZone(pr, 0, 10)
	plan = live(t, &p, pr)
	require.Equal(t, []int{300, 300}, []int{plan.Adds, plan.Moves})
}

// Each term a worker of a zone of its own comes, or goes. Caps may change by one copy of a task only
// if the number of zones that count does.
func TestP13_FlickeringZonesMakeNoStorm(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var p rebalance.Planner
	pr := settledZones(t, &p, 300, 3, 10, 10, 10)
	for term := range 60 {
		change := 31 // copies that must start or may move: those of the worker
		if len(pr.States) > 30 && random.IntN(2) == 0 {
			change = len(pr.Running[30])
			dropWorker(pr, 30)
		} else {
			joinZone(pr, 3+random.IntN(4), 1)
		}
		require.LessOrEqual(t, live(t, &p, pr).Adds, 2*change+10, "term %d", term)
	}
}

// The copies that go to an empty zone come evenly from the workers of the others.
func TestP15_EmptyZoneFillsFromAllWorkers(t *testing.T) {
	for _, sizes := range [][]int{{6, 6}, {4, 4, 4}} {
		var p rebalance.Planner
		pr := settledZones(t, &p, 120, 2, sizes...)
		joinZone(pr, len(sizes), 4)
		require.Equal(t, 60, live(t, &p, pr).Adds)
		for w, list := range pr.Running[:12] {
			require.Len(t, list, 15, "worker %d", w)
		}
	}
}

func TestP13_ManyZones(t *testing.T) {
	var p rebalance.Planner
	pr := settledZones(t, &p, 2000, 3, slices.Repeat([]int{3}, 100)...)
	for w, list := range pr.Running {
		require.Len(t, list, 20, "worker %d", w)
	}
	joinZone(pr, 7, 1)
	require.LessOrEqual(t, live(t, &p, pr).Adds, 20)
}
