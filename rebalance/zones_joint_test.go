package rebalance_test

import (
	"flag"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

var jointProblems = flag.Uint64("rebalance.joint", 1_500, "how many random problems with zones to compare with the joint minimum")

// TestP15_DistanceFromTheJointMinimum measures plans with zones against a minimum-cost flow
// that chooses zones and workers together: most placed within the caps, then the least sum
// of load², then the fewest starts.
func TestP15_DistanceFromTheJointMinimum(t *testing.T) {
	t.Parallel()
	const first = 1
	var planner rebalance.Planner
	var compared, lessPlaced, lessEven, morePlaced, starts, least, worst int
	for _, s := range ruledShapes {
		if s.name != "zones" && s.name != "zones_caps" {
			continue
		}
		for number := range *jointProblems {
			pr := s.make(first + number)
			if len(pr.Want)*len(pr.States) > 600 {
				continue
			}
			plan, err := planner.Plan(pr)
			if err != nil {
				t.Fatal(err)
			}
			r, err := checkRuled(pr, plan)
			if err != nil {
				t.Fatalf("problem %d, %s: %v", first+number, s.name, err)
			}
			if hasStaying(plan) {
				continue
			}
			placed, squares, adds := r.joint()
			got, ours := 0, 0
			for w := range r.workers {
				got += r.loads[w]
				ours += r.loads[w] * r.loads[w]
			}
			compared++
			switch {
			case got < placed:
				lessPlaced++
			case got > placed:
				morePlaced++ // beyond a default cap
			case ours > squares:
				lessEven++
			default:
				starts += plan.Adds
				least += adds
				worst = max(worst, plan.Adds-adds)
			}
		}
	}
	t.Logf("%d problems: %d place less, %d more, %d are less even; the others have %d starts, at least %d, and at worst %d more in one problem",
		compared, lessPlaced, morePlaced, lessEven, starts, least, worst)
	if lessPlaced > 0 {
		t.Errorf("%d plans place less than is possible within the caps", lessPlaced)
	}
	if lessEven*100 > compared {
		t.Errorf("%d of %d plans are less even than is possible within the caps", lessEven, compared)
	}
	if (starts-least)*100 > 3*least {
		t.Errorf("%d starts, the least is %d", starts, least)
	}
}

func hasStaying(plan rebalance.Plan) bool {
	for _, u := range plan.Unplaced {
		if u.Worker != none {
			return true
		}
	}
	return false
}

// joint returns the most copies that can run within the caps, the least sum of load² then, and
// the fewest starts then. All workers are open.
func (r *ruled) joint() (placed, squares, adds int) {
	const square = 1 << 20
	source, sink, zone := 0, 1, 2
	worker := zone + r.tasks*r.zones
	task := worker + r.workers
	g := newNetwork(task + r.tasks)
	for t, target := range r.target {
		most, _ := r.capOf(t)
		g.connect(source, task+t, target, 0)
		for z := range r.zones {
			g.connect(task+t, zone+t*r.zones+z, most, 0)
		}
		for w := range r.workers {
			cost := int64(1)
			if r.held[w][t] {
				cost = 0
			}
			g.connect(zone+t*r.zones+r.zone(w), worker+w, 1, cost)
		}
	}
	for w := range r.workers {
		for l := range r.tasks {
			g.connect(worker+w, sink, 1, int64(2*l+1)*square)
		}
	}
	flow, cost := g.run()
	return flow, int(cost / square), int(cost % square)
}

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
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		t.Fatal(err)
	}
	r, err := checkRuled(pr, plan)
	if err != nil {
		t.Fatal(err)
	}
	for w, n := range r.loads {
		if w < 10 && n != 100 || w >= 10 && (n < 50 || n > 51) {
			t.Errorf("worker %d runs %d tasks", w, n)
		}
	}
}

// afterPlan returns the problem after a plan, which it checks.
func afterPlan(t *testing.T, pr *rebalance.Problem) *rebalance.Problem {
	t.Helper()
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		t.Fatal(err)
	}
	r, err := checkRuled(pr, plan)
	if err != nil {
		t.Fatal(err)
	}
	return r.problem()
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
			plan, err := new(rebalance.Planner).Plan(pr)
			if err != nil {
				t.Fatal(err)
			}
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
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := checkRuled(pr, plan); err != nil {
		t.Fatal(err)
	}
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
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		t.Fatal(err)
	}
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
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		t.Fatal(err)
	}
	if len(plan.Changes) != 1 || plan.Changes[0].To != 1 {
		t.Errorf("changes %+v", plan.Changes)
	}
}
