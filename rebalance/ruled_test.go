package rebalance_test

// Random problems with rules: labels, zones, shares, limits and weights. The checks know
// only the problem and the plan, and the joint minimum.

import (
	"cmp"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/rebalance"
)

var ruledProblems = flag.Int("rebalance.ruled", 2_500, "how many random problems with rules to plan")

var ruledShape = flag.String("rebalance.shape", "", "plan only random problems with rules of shapes whose names begin so")

var onceBase = []base{single, chains, allOnOne, settled, empty}

var anyState = mix(rebalance.Draining, rebalance.Frozen, rebalance.Quarantined)

// ruledShapes are the families of problems with rules.
var ruledShapes = []shape{
	{name: "labels_once", bases: onceBase, twist: twists(once, labels, sometimes(zones))},
	{name: "labels", bases: anyBase, twist: twists(labels)},
	{name: "pins", bases: anyBase, twist: twists(pins)},
	{name: "labels_draining_and_frozen", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen), labels)},
	{name: "labels_states", bases: anyBase, twist: twists(anyState, labels)},
	{name: "labels_forbidden", bases: anyBase, twist: twists(labels, fewForbidden)},
	{name: "labels_pinned", bases: anyBase, twist: twists(labels, pinned)},
	{name: "labels_budget", bases: anyBase, twist: twists(labels, budget)},
	{name: "shares_once", bases: onceBase, twist: twists(once, shares, sometimes(labels))},
	{name: "shares", bases: anyBase, twist: twists(shares)},
	{name: "shares_states", bases: anyBase, twist: twists(anyState, shares, sometimes(pinned))},
	{name: "limits_once", bases: onceBase, twist: twists(once, limits, sometimes(labels), sometimes(shares))},
	{name: "limits", bases: anyBase, twist: twists(limits)},
	{name: "limits_states", bases: anyBase, twist: twists(anyState, limits, sometimes(budget))},
	{name: "zones", bases: anyBase, twist: twists(zones)},
	{name: "zones_caps", bases: anyBase, twist: twists(zones, caps)},
	{name: "zones_states", bases: anyBase, twist: twists(anyState, zones, sometimes(caps))},
	{name: "zones_budget", bases: anyBase, twist: twists(zones, sometimes(caps), budget)},
	{name: "zones_rules", bases: anyBase, twist: twists(zones, sometimes(caps), sometimes(labels), sometimes(shares), sometimes(limits))},
	{name: "weights", bases: anyBase, twist: twists(weights)},
	{name: "weights_rules", bases: anyBase, twist: twists(weights, sometimes(labels), sometimes(shares), sometimes(limits), sometimes(zones))},
	{name: "weights_states", bases: anyBase, twist: twists(anyState, weights, sometimes(pinned), sometimes(budget))},
	{name: "all_rules", bases: anyBase, twist: twists(
		sometimes(anyState), sometimes(labels), sometimes(shares), sometimes(limits), sometimes(zones), sometimes(caps), sometimes(weights),
		sometimes(fewForbidden), sometimes(pinned), sometimes(budget))},
}

// labels draws classes and kinds, and which kinds may run which classes.
func labels(m *maker) {
	classes, kinds := 1+m.IntN(8), 1+m.IntN(6)
	m.pr.Class, m.pr.Kind = make([]int32, m.tasks), make([]int32, m.workers)
	for t := range m.pr.Class {
		m.pr.Class[t] = int32(m.IntN(classes))
	}
	for w := range m.pr.Kind {
		m.pr.Kind[w] = int32(m.IntN(kinds))
	}
	m.pr.May = make([][]int32, classes)
	for c := range m.pr.May {
		if m.IntN(4) == 0 {
			continue // everywhere
		}
		m.pr.May[c] = []int32{}
		for k := range kinds {
			if m.IntN(2) == 0 {
				m.pr.May[c] = append(m.pr.May[c], int32(k))
			}
		}
	}
}

// pins lets most tasks run on one worker only.
func pins(m *maker) {
	m.pr.Class, m.pr.Kind = make([]int32, m.tasks), make([]int32, m.workers)
	m.pr.May = make([][]int32, m.workers+1)
	for w := range m.workers {
		m.pr.Kind[w], m.pr.May[w] = int32(w), []int32{int32(w)}
	}
	for t := range m.pr.Class {
		m.pr.Class[t] = int32(m.IntN(m.workers + 1))
	}
}

func shares(m *maker) {
	m.pr.Share = make([]int32, m.workers)
	for w := range m.pr.Share {
		m.pr.Share[w] = int32(1 + m.IntN(4))
	}
}

// limits draws limits around the mean load, for most workers.
func limits(m *maker) {
	m.pr.MaxTasks = make([]int32, m.workers)
	wanted := 0
	for _, want := range m.pr.Want {
		wanted += min(int(want), m.workers)
	}
	for w := range m.pr.MaxTasks {
		if m.IntN(4) > 0 {
			m.pr.MaxTasks[w] = int32(1 + m.IntN(2+2*wanted/m.workers))
		}
	}
}

func zones(m *maker) {
	m.pr.Zone = make([]int32, m.workers)
	n := 1 + m.IntN(4)
	for w := range m.pr.Zone {
		m.pr.Zone[w] = int32(m.IntN(n))
	}
}

// caps draws explicit limits by zone, and tasks without a rule.
func caps(m *maker) {
	m.pr.MaxPerZone = make([]int32, m.tasks)
	for t := range m.pr.MaxPerZone {
		m.pr.MaxPerZone[t] = int32(m.IntN(5) - 1)
	}
}

func weights(m *maker) {
	m.pr.Weight, m.pr.Band = make([]rebalance.Weight, m.tasks), int32(m.IntN(3)*50_000)
	most := []int64{2, 10, 1000, rebalance.MaxWeight}[m.IntN(4)]
	for t := range m.pr.Weight {
		m.pr.Weight[t] = rebalance.RoundWeight(1 + m.Int64N(most))
	}
}

// ruled is an outcome of a problem with rules.
type ruled struct {
	*outcome
	zones int
}

func (r *ruled) admits(w, t int) bool {
	pr := r.pr
	if pr.May == nil || pr.Class == nil {
		return true
	}
	kinds, kind := pr.May[pr.Class[t]], int32(0)
	if pr.Kind != nil {
		kind = pr.Kind[w]
	}
	return kinds == nil || slices.Contains(kinds, kind)
}

func (r *ruled) zone(w int) int {
	if r.pr.Zone == nil {
		return 0
	}
	return int(r.pr.Zone[w])
}

func (r *ruled) share(w int) int {
	if r.pr.Share == nil {
		return 1
	}
	return int(r.pr.Share[w])
}

// limit returns the most copies that w may run.
func (r *ruled) limit(w int) int {
	if r.pr.MaxTasks == nil || r.pr.MaxTasks[w] == 0 {
		return 1 << 30
	}
	return int(r.pr.MaxTasks[w])
}

// explicit returns the MaxPerZone of t, 0 without one.
func (r *ruled) explicit(t int) int {
	if r.pr.MaxPerZone == nil {
		return 0
	}
	return int(r.pr.MaxPerZone[t])
}

// capOf returns how many copies of t one zone may run, by the words of P13, and whether that
// is a rule of the user.
func (r *ruled) capOf(t int) (most int, isRule bool) {
	none := 1 << 30
	if n := r.explicit(t); n != 0 {
		if n < 0 {
			return none, false
		}
		return n, true
	}
	of := make([]int, r.zones)
	total, used := 0, 0
	for w, s := range r.pr.States {
		if s != rebalance.Draining && r.admits(w, t) {
			of[r.zone(w)]++
			total++
		}
	}
	for _, n := range of {
		if n > 0 {
			used++
		}
	}
	if r.pr.Want[t] < 2 || used < 2 {
		return none, false
	}
	slices.SortFunc(of, func(a, b int) int { return cmp.Compare(b, a) })
	z := 2
	for _, n := range of[2:] {
		if n > 0 && 2*n*used >= total {
			z++
		}
	}
	i := int(r.pr.Want[t])
	for c := (i + z - 1) / z; ; c++ {
		fits := 0
		for _, n := range of {
			fits += min(c, n)
		}
		if fits >= min(i, total) {
			return c, false
		}
	}
}

// inZone returns the copies of t in a zone, before and after the plan. Copies on frozen
// workers count.
func (r *ruled) inZone(t, z int) (before, after int) {
	for w := range r.after {
		if r.zone(w) != z {
			continue
		}
		if r.held[w][t] {
			before++
		}
		if r.after[w][t] {
			after++
		}
	}
	return before, after
}

// misplaced returns the copies of t that run in a zone without their labels.
func (r *ruled) misplaced(t, z int) (n int) {
	for w := range r.after {
		if r.zone(w) == z && r.after[w][t] && !r.admits(w, t) {
			n++
		}
	}
	return n
}

// starts checks P10 for each worker that gains a copy.
func (r *ruled) starts() error {
	for i, c := range r.plan.Changes {
		if c.To == none {
			continue
		}
		w, t := int(c.To), int(c.Task)
		if !r.admits(w, t) {
			return fmt.Errorf("P10: change %d, %+v, adds where the labels do not match", i, c)
		}
		if r.loads[w] > r.limit(w) {
			return fmt.Errorf("P10: change %d, %+v, gives worker %d its copy %d of at most %d", i, c, w, r.loads[w], r.limit(w))
		}
		most, isRule := r.capOf(t)
		_, after := r.inZone(t, r.zone(w))
		if !isRule { // a default leaves no copy unplaced because others wait for an eviction
			after -= r.misplaced(t, r.zone(w))
		}
		if (isRule && most < int(r.pr.Want[t]) || r.isWhole()) && after > most {
			return fmt.Errorf("P10: change %d, %+v, gives zone %d %d copies of at most %d", i, c, r.zone(w), after, most)
		}
	}
	return nil
}

// isWhole reports whether all workers are open, nothing but rules restricts them, and no
// copy stays where a rule forbids it.
func (r *ruled) isWhole() bool {
	for _, u := range r.plan.Unplaced {
		if u.Worker != none {
			return false
		}
	}
	return len(r.open) == r.workers && r.free() && r.pr.MaxTasks == nil && r.plan.Deferred+r.plan.Held == 0
}

// breaks returns the rules that a running copy of t on w breaks.
func (r *ruled) breaks(w, t int, before bool) (reasons []rebalance.Reason) {
	if !r.admits(w, t) {
		reasons = append(reasons, rebalance.EvictLabel)
	}
	n, load := r.inZone(t, r.zone(w))
	if !before {
		n = load
	}
	if most, _ := r.capOf(t); n > most {
		reasons = append(reasons, rebalance.EvictZone)
	}
	load = r.loads[w]
	if before {
		load = 0
		for t, held := range r.held[w] {
			if held && r.pr.Want[t] > 0 {
				load++
			}
		}
	}
	if load > r.limit(w) {
		reasons = append(reasons, rebalance.EvictLimit)
	}
	return reasons
}

// reasonsOf checks P7 and P11: each change has its true reason.
func (r *ruled) reasonsOf() error {
	starts, stops := make([]bool, r.tasks), make([]bool, r.tasks)
	for i, c := range r.plan.Changes {
		good := false
		switch {
		case c.From == none:
			good = c.Reason == rebalance.Missing
			starts[c.Task] = true
		case c.To == none && r.pr.Want[c.Task] == 0:
			good = c.Reason == rebalance.Unexpected
		case c.To == none:
			good = c.Reason == rebalance.Surplus
			stops[c.Task] = true
		case r.pr.States[c.From] == rebalance.Draining:
			good = c.Reason == rebalance.Drain
		case c.Reason == rebalance.Rebalance, c.Reason == rebalance.Room && r.makesRoom(c):
			good = r.admits(int(c.From), int(c.Task))
		default:
			good = slices.Contains(r.breaks(int(c.From), int(c.Task), true), c.Reason)
		}
		if !good {
			return fmt.Errorf("P7: change %d, %+v, has the wrong reason", i, c)
		}
		if starts[c.Task] && stops[c.Task] {
			return fmt.Errorf("P7: task %d is started and stopped: that is a move", c.Task)
		}
	}
	return nil
}

// counts checks P1, P4 and P11 task by task: nothing stops but what is surplus.
func (r *ruled) counts() error {
	missing := make([]int, r.tasks)
	staying := make(map[rebalance.Pair]bool)
	for i, u := range r.plan.Unplaced {
		if u.Task < 0 || int(u.Task) >= r.tasks || u.Copies < 1 {
			return fmt.Errorf("P7: unplaced %d, %+v", i, u)
		}
		if u.Worker == none {
			missing[u.Task] += int(u.Copies)
			continue
		}
		pair := rebalance.Pair{Task: u.Task, Worker: u.Worker}
		if staying[pair] || u.Copies != 1 || !r.after[u.Worker][u.Task] {
			return fmt.Errorf("P7: unplaced %d, %+v, comes twice or is not there", i, u)
		}
		staying[pair] = true
		if u.Reason == rebalance.NoPlaceByRules && r.pr.States[u.Worker] != rebalance.Draining && len(r.breaks(int(u.Worker), int(u.Task), false)) == 0 {
			return fmt.Errorf("P7: unplaced %d, %+v, breaks no rule", i, u)
		}
	}
	for t, target := range r.target {
		total := r.onOpen[t] + r.onQuarantined[t] + r.onDraining[t]
		has := fmt.Sprintf("task %d (wants %d, %d frozen, %d answering, target %d) gets %d", t, r.pr.Want[t], r.frozen[t], r.answering[t], target, total)
		switch {
		case total > target:
			return fmt.Errorf("P1: %s", has)
		case total < min(int(r.pr.Want[t]), r.answering[t]):
			return fmt.Errorf("P4: %s", has)
		case total+missing[t] != target:
			return fmt.Errorf("P7: %s, and %d are said to be missing", has, missing[t])
		}
	}
	if r.plan.Deferred+r.plan.Held > 0 {
		return nil
	}
	for w, list := range r.after {
		for t, runs := range list {
			pair := rebalance.Pair{Task: int32(t), Worker: int32(w)}
			if !runs || r.pr.States[w] == rebalance.Frozen || staying[pair] {
				continue
			}
			if r.pr.States[w] == rebalance.Draining {
				return fmt.Errorf("P7: task %d stays on draining worker %d and is not listed", t, w)
			}
			if r.pr.States[w] == rebalance.Open && !r.pinned[w][t] && !r.admits(w, t) {
				return fmt.Errorf("P11: task %d stays on worker %d without its labels and is not listed", t, w)
			}
		}
	}
	return nil
}

// spare checks P9 for what is not placed: no worker could simply take it.
func (r *ruled) spare() error {
	if r.plan.Deferred > 0 {
		return nil
	}
	for i, u := range r.plan.Unplaced {
		if u.Reason == rebalance.CopyPinned {
			continue
		}
		t := int(u.Task)
		most, isRule := r.capOf(t)
		for w, s := range r.pr.States {
			if s != rebalance.Open || r.held[w][t] || r.after[w][t] || r.forbidden[rebalance.Pair{Task: u.Task, Worker: int32(w)}] || !r.admits(w, t) || r.loads[w] >= r.limit(w) {
				continue
			}
			_, n := r.inZone(t, r.zone(w))
			if u.Worker != none && r.zone(int(u.Worker)) == r.zone(w) {
				n-- // it moves inside the zone
			}
			if isRule && n >= most || u.Worker != none && r.pr.States[u.Worker] != rebalance.Draining && n >= most {
				continue
			}
			return fmt.Errorf("P9: unplaced %d, %+v, could go to worker %d", i, u, w)
		}
	}
	return nil
}

// isExact reports whether the plan is promised to be the best one (P14, P16).
func (r *ruled) isExact() bool {
	return slices.Max(append(r.pr.Want, 0)) <= 1 && r.pr.Weight == nil && len(r.quarantined) == 0 && !r.isPinned &&
		len(r.forbidden) == 0 && r.pr.MaxMoves < 0 && !r.pr.Still && slices.Max(append(r.answering, 0)) <= 1 && !r.isOverfull()
}

func (r *ruled) isOverfull() bool {
	for w, list := range r.pr.Running {
		if len(list) > r.limit(w) {
			return true
		}
	}
	return slices.ContainsFunc(r.pr.MaxPerZone, func(n int32) bool { return n > 0 })
}

// best checks P9, P14 and P16 against the joint minimum, where that is promised.
func (r *ruled) best() error {
	if r.tasks > 64 || r.pr.MaxMoves >= 0 || r.pr.Still {
		return nil
	}
	j, err := r.judge()
	switch {
	case err != nil || !j.isKnown || j.someStay:
		return err
	case j.fault == placesLess && len(r.quarantined) == 0 && !r.isPinned && !slices.Contains(r.pr.States, rebalance.Frozen):
		return fmt.Errorf("P9: %s", j.fault)
	case j.fault != noFault && r.isExact():
		return fmt.Errorf("P14: %s", j.fault)
	case r.isExact() && r.plan.LowerBound != r.plan.Adds:
		return fmt.Errorf("P14: lower bound %d, %d starts are the fewest", r.plan.LowerBound, r.plan.Adds)
	}
	return nil
}

func checkRuled(pr *rebalance.Problem, plan rebalance.Plan) (*ruled, error) {
	o, err := carryOut(read(pr), plan)
	if err != nil {
		return nil, err
	}
	r := &ruled{outcome: o, zones: 1}
	for _, z := range pr.Zone {
		r.zones = max(r.zones, int(z)+1)
	}
	for _, check := range []func() error{r.sums, r.starts, r.reasonsOf, r.counts, r.stays, r.spare} {
		if err := check(); err != nil {
			return r, err
		}
	}
	return r, nil
}

// examineRuled plans a problem with rules until nothing changes, and checks each plan.
func examineRuled(pr *rebalance.Problem, used *rebalance.Planner) error {
	plan, err := new(rebalance.Planner).Plan(pr)
	if err != nil {
		return fmt.Errorf("P1: refused: %w", err)
	}
	if err := again(used, pr, plan, "after another problem"); err != nil {
		return err
	}
	calls := 3 // at the latest the second plan on a result is empty
	if pr.MaxMoves >= 0 {
		calls = 300
	}
	now := pr
	for call := range calls {
		r, err := checkRuled(now, plan)
		if err == nil {
			err = r.best()
		}
		if err != nil {
			return fmt.Errorf("%w (call %d)", err, call+1)
		}
		if len(plan.Changes) == 0 {
			return nil
		}
		now = r.problem()
		if plan, err = used.Plan(now); err != nil {
			return fmt.Errorf("P6: call %d was refused: %w", call+2, err)
		}
		if pr.MaxMoves == 0 && call == 0 && plan.Adds > 0 {
			return fmt.Errorf("P6: call 2 of a budget of none has %d starts", plan.Adds)
		}
	}
	return fmt.Errorf("P6: after %d calls, there is still %+v, %d deferred", calls, plan.Changes, plan.Deferred)
}

func TestP10_RandomProblemsWithRules(t *testing.T) {
	t.Parallel()
	r := run{flag: "rebalance.ruled"}
	r.make = func(number uint64) (*rebalance.Problem, string) {
		s := ruledShapes[number%uint64(len(ruledShapes))]
		if !strings.HasPrefix(s.name, *ruledShape) {
			return nil, ""
		}
		return s.make(number), s.name
	}
	r.examine = func(pr *rebalance.Problem, used *rebalance.Planner) (gap, error) {
		return gap{}, examineRuled(pr, used)
	}
	r.plan(t, *ruledProblems)
}

// Problems that an earlier planner got wrong: a task placed less, a plan that never settled, a copy on a worker
// with too many, more moves than the limit.
func TestP10_ProblemsWithRulesThatWereHard(t *testing.T) {
	used := new(rebalance.Planner)
	for _, number := range []uint64{
		54477960, 1000241525, 1000368106, 1000379799, 1000484629, 1000753770, 3000108419, 3000985879, 3001387496, 5000406953,
		7002188723, 9002638172, 30001604238, 30002217427, 50000870814, 60000706026, 645954596602,
	} {
		s := ruledShapes[number%uint64(len(ruledShapes))]
		require.NoError(t, examineRuled(s.make(number), used), "problem %d, %s", number, s.name)
	}
}
