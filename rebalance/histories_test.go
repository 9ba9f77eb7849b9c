package rebalance_test

// Plans beside the joint minimum: histories of a fleet, event by event, and tiny problems. A
// kind is what the problems have. It says how far its plans may be from the minimum.

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

var (
	histories = flag.Uint64("rebalance.histories", 40, "how many histories of each kind to plan")
	tiny      = flag.Uint64("rebalance.tiny", 1_500, "how many tiny problems of each kind to plan")
	exact     = flag.Bool("rebalance.exact", false, "tolerate no plan that is not the best")
)

// tolerance is how far the plans of a kind may be from the joint minimum, in percent: starts above
// the fewest, and plans with each other fault. The zero value is exact.
type tolerance struct{ starts, even, bounds, placed, first, stays, worse float64 }

// trait is what the tasks and workers of a history have.
type trait uint

const (
	withCopies trait = 1 << iota
	withLabels
	withZones
	withCaps
	withShares
	withLimits
	withDrains
	withStops // frozen, quarantined and pinned
)

// historyKinds are all kinds of histories.
var historyKinds = []struct {
	name   string
	traits trait
	tolerance
}{
	{name: "plain single"},
	{name: "plain multi", traits: withCopies},
	{name: "labels single", traits: withLabels},
	{name: "labels multi", traits: withLabels | withCopies, tolerance: tolerance{starts: 2, bounds: 1, worse: 3}},
	{name: "zones multi", traits: withZones | withCopies, tolerance: tolerance{starts: 2, bounds: 1}},
	{name: "zones, drains", traits: withZones | withCopies | withDrains, tolerance: tolerance{starts: 2, bounds: 1}},
	{name: "zones, explicit caps", traits: withZones | withCopies | withCaps, tolerance: tolerance{starts: 3, bounds: 1}},
	{name: "zones + labels", traits: withZones | withCopies | withLabels, tolerance: tolerance{starts: 5, even: 11, bounds: 2, worse: 4}},
	{name: "shares", traits: withShares},
	{name: "shares multi", traits: withShares | withCopies, tolerance: tolerance{starts: 2, bounds: 2}},
	{name: "limits", traits: withLimits},
	{name: "limits multi", traits: withLimits | withCopies, tolerance: tolerance{starts: 2, bounds: 1}},
	{name: "limits + labels", traits: withLimits | withLabels, tolerance: tolerance{starts: 1, stays: 1, worse: 2}},
	{
		name:      "everything",
		traits:    withCopies | withLabels | withZones | withCaps | withShares | withLimits | withDrains | withStops,
		tolerance: tolerance{starts: 6, even: 5, bounds: 1, placed: 1, first: 4, stays: 2, worse: 5},
	},
}

// turns is the length of a history.
const turns = 20

// history is a fleet in the course of events.
type history struct {
	*rand.Rand
	traits trait
	pr     *rebalance.Problem
}

func newHistory(number uint64, traits trait) *history {
	h := &history{
		Rand: rand.New(rand.NewPCG(number, 2)), traits: traits,
		pr: &rebalance.Problem{MaxMoves: rebalance.NoLimit},
	}
	if h.has(withLabels) {
		h.pr.May = make([][]int32, 4)
		for c := range h.pr.May {
			h.label(c)
		}
	}
	for range 2 + h.IntN(5) {
		h.join()
	}
	for range 1 + h.IntN(10) {
		h.add()
	}
	return h
}

func (h *history) has(t trait) bool { return h.traits&t != 0 }

const kindsOfWorkers = 3

// label draws which kinds of workers may run a class.
func (h *history) label(class int) {
	h.pr.May[class] = nil
	if h.IntN(4) > 0 {
		first, second := h.Int32N(kindsOfWorkers), h.Int32N(kindsOfWorkers)
		h.pr.May[class] = slices.Compact([]int32{min(first, second), max(first, second)})
	}
}

func (h *history) join() {
	pr := h.pr
	pr.States, pr.Running = append(pr.States, rebalance.Open), append(pr.Running, nil)
	if h.has(withLabels) {
		pr.Kind = append(pr.Kind, h.Int32N(kindsOfWorkers))
	}
	if h.has(withZones) {
		pr.Zone = append(pr.Zone, h.Int32N(3))
	}
	if h.has(withShares) {
		pr.Share = append(pr.Share, 1+h.Int32N(3))
	}
	if h.has(withLimits) {
		pr.MaxTasks = append(pr.MaxTasks, h.Int32N(7))
	}
	if h.has(withStops) {
		pr.Pinned = append(pr.Pinned, 0)
	}
}

func (h *history) add() {
	pr := h.pr
	pr.Want = append(pr.Want, h.want())
	if h.has(withLabels) {
		pr.Class = append(pr.Class, h.Int32N(int32(len(pr.May))))
	}
	if h.has(withCaps) {
		pr.MaxPerZone = append(pr.MaxPerZone, h.Int32N(4)-1)
	}
}

func (h *history) want() int32 {
	if h.has(withCopies) {
		return 1 + h.Int32N(3)
	}
	return 1
}

// next changes one thing.
func (h *history) next() {
	h.pr = clone(h.pr)
	pr := h.pr
	w, t := h.IntN(len(pr.States)), h.IntN(len(pr.Want))
	switch e := h.IntN(10); {
	case e < 2 && len(pr.States) < 8:
		h.join()
	case e < 4 && len(pr.States) > 2:
		dropWorker(pr, int32(w))
	case e < 5 && h.has(withLabels) && h.IntN(2) == 0:
		pr.Kind[w] = h.Int32N(kindsOfWorkers)
	case e < 5 && h.has(withLabels):
		h.label(h.IntN(len(pr.May)))
	case e < 6 && h.has(withDrains|withStops):
		h.change(w)
	case e < 7 && len(pr.Want) < 12:
		h.add()
	case e < 8 && len(pr.Want) > 1:
		dropTask(pr, int32(t))
	case e < 9 && pr.Want[t] > 0 && h.IntN(3) == 0:
		pr.Want[t] = 0
	default:
		pr.Want[t] = h.want()
	}
}

// change changes the state of a worker, what is pinned there, or its limit.
func (h *history) change(w int) {
	pr := h.pr
	switch {
	case h.has(withLimits) && h.IntN(4) == 0:
		pr.MaxTasks[w] = h.Int32N(7)
	case h.has(withStops) && h.IntN(4) == 0:
		pr.Pinned[w] = h.Int32N(int32(len(pr.Running[w]) + 1))
	case pr.States[w] != rebalance.Open:
		pr.States[w] = rebalance.Open
	case h.has(withStops):
		pr.States[w] = rebalance.State(1 + h.IntN(3))
	default:
		pr.States[w] = rebalance.Draining
	}
}

// tinyKinds are all kinds of tiny problems.
var tinyKinds = []struct {
	name  string
	twist []func(*maker)
	tolerance
}{
	{name: "plain"},
	{name: "labels", twist: twists(labels), tolerance: tolerance{starts: 1, worse: 5}},
	{name: "zones", twist: twists(zones), tolerance: tolerance{starts: 1, bounds: 1}},
	{name: "zones, explicit caps", twist: twists(zones, caps), tolerance: tolerance{starts: 1, bounds: 1, worse: 1}},
	{name: "shares", twist: twists(shares), tolerance: tolerance{starts: 2, bounds: 1}},
	{name: "limits", twist: twists(limits), tolerance: tolerance{starts: 1, worse: 2}},
	{name: "zones + labels", twist: twists(zones, labels), tolerance: tolerance{starts: 2, even: 1, bounds: 1, worse: 5}},
	{name: "shares + labels", twist: twists(shares, labels), tolerance: tolerance{starts: 2, bounds: 1, worse: 8}},
	{name: "limits + labels", twist: twists(limits, labels), tolerance: tolerance{starts: 1, first: 1, stays: 1, worse: 6}},
	{name: "zones + shares", twist: twists(zones, shares), tolerance: tolerance{starts: 2, bounds: 1}},
	{name: "zones + limits", twist: twists(zones, limits), tolerance: tolerance{starts: 2, bounds: 1, first: 1, stays: 1, worse: 2}},
	{name: "states, pinned", twist: twists(anyState, sometimes(pinned), sometimes(fewForbidden)), tolerance: tolerance{starts: 1, even: 2, bounds: 1, worse: 1}},
	{
		name: "everything", twist: twists(
			sometimes(anyState), sometimes(pinned), sometimes(fewForbidden),
			sometimes(labels), sometimes(zones), sometimes(caps), sometimes(shares), sometimes(limits)),
		tolerance: tolerance{starts: 2, even: 2, bounds: 1, placed: 1, first: 1, stays: 1, worse: 5},
	},
}

// anySets wants up to three copies of each task and holds any of them.
func anySets(m *maker) {
	m.wants(0, 3)
	chance := 10 + m.IntN(81)
	for w := range m.workers {
		for t := range m.tasks {
			if m.IntN(100) < chance {
				m.hold(w, t)
			}
		}
	}
}

// score sums up the plans of one kind.
type score struct {
	used          rebalance.Planner
	plans, known  int
	starts, above int64 // the fewest, and those above
	faults        map[fault]int
	smallest      map[fault]*rebalance.Problem
}

func newScore() *score {
	return &score{faults: make(map[fault]int), smallest: make(map[fault]*rebalance.Problem)}
}

// Two more faults of a kind: all of those in problems in which some copies must stay where they
// should not, and a plan after which there is more to do.
const (
	worse  fault = "worse where some stay"
	goesOn fault = "goes on"
)

// judged plans a problem and judges the plan. It returns the problem after the plan too.
func judged(pr *rebalance.Problem, used *rebalance.Planner) (j judgement, after *rebalance.Problem, err error) {
	plan, err := used.Plan(pr)
	if err != nil {
		return j, nil, err
	}
	r, err := checkRuled(pr, plan)
	if err != nil {
		return j, nil, err
	}
	if j, err = r.judge(); err != nil {
		return j, nil, err
	}
	after = r.problem()
	again, err := used.Plan(after)
	switch {
	case j.fault != noFault && j.someStay:
		j = judgement{isKnown: j.isKnown, fault: worse}
	case err == nil && j.fault == noFault && len(again.Changes) > 0:
		j.fault = goesOn
	}
	return j, after, err
}

// add judges the plan of a problem and returns the problem after it.
func (s *score) add(pr *rebalance.Problem) (*rebalance.Problem, error) {
	j, after, err := judged(pr, &s.used)
	if err != nil {
		return nil, err
	}
	s.plans++
	if j.isKnown {
		s.known++
	}
	s.starts += j.starts
	s.above += j.above
	if f := j.fault; f != noFault {
		s.faults[f]++
		if s.smallest[f] == nil || size(pr) < size(s.smallest[f]) {
			s.smallest[f] = pr
		}
	}
	return after, nil
}

// size is how much there is in a problem.
func size(pr *rebalance.Problem) (n int) {
	for _, list := range pr.Running {
		n += len(list)
	}
	return n + len(pr.Want) + len(pr.States)
}

// check prints the line of a kind, and for each fault beyond the tolerance a small problem.
func (s *score) check(t *testing.T, name string, most tolerance) {
	t.Helper()
	above := 100 * float64(s.above) / float64(max(1, s.starts))
	line := fmt.Sprintf("%-20s %6d plans, %d known, %d starts %+.2f%%", name, s.plans, s.known, s.starts, above)
	for _, b := range []struct {
		fault fault
		most  float64
	}{
		{startsMore, most.starts},
		{lessEven, most.even},
		{boundAbove, most.bounds},
		{placesLess, most.placed},
		{furtherFirst, most.first},
		{staysMore, most.stays},
		{worse, most.worse},
		{goesOn, 0},
	} {
		n := s.faults[b.fault]
		share := 100 * float64(n) / float64(s.plans)
		if b.fault == startsMore {
			share = above
		} else {
			line += fmt.Sprintf(", %s %d", b.fault, n)
		}
		if *exact {
			b.most = 0
		}
		if pr := s.smallest[b.fault]; pr != nil && share > b.most {
			t.Errorf("%s: %s: %.2f%% instead of at most %.2f%%, as in\n%s", name, b.fault, share, b.most, reduced(pr, b.fault))
		}
	}
	_, _ = fmt.Fprintln(t.Output(), line)
}

// reduced describes a problem with a fault when it is as small as it gets.
func reduced(pr *rebalance.Problem, f fault) string {
	small := shrink(pr, errors.New(string(f)), func(pr *rebalance.Problem) error {
		j, _, err := judged(pr, new(rebalance.Planner))
		if err == nil && j.fault != noFault {
			err = errors.New(string(j.fault))
		}
		return err
	})
	return fmt.Sprintf("%s\nas code: %#v", describe(small), *small)
}

func TestP15_HistoriesAreExact(t *testing.T) {
	t.Parallel()
	first := firstNumber(t)
	for _, k := range historyKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s := newScore()
			for number := first; number < first+*histories; number++ {
				h := newHistory(number, k.traits)
				for turn := range turns {
					after, err := s.add(h.pr)
					if err != nil {
						t.Fatalf("history %d, turn %d: %v\n%#v", number, turn, err, *h.pr)
					}
					h.pr = after
					h.next()
				}
			}
			s.check(t, k.name, k.tolerance)
		})
	}
}

func TestP15_TinyProblemsAreExact(t *testing.T) {
	t.Parallel()
	first := firstNumber(t)
	for _, k := range tinyKinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			s, family := newScore(), shape{bases: []base{anySets}, twist: k.twist}
			for number := first; number < first+*tiny; number++ {
				random := rand.New(rand.NewPCG(number, 3))
				pr := family.sized(random, 2+random.IntN(3), 1+random.IntN(3))
				if _, err := s.add(pr); err != nil {
					t.Fatalf("problem %d: %v\n%#v", number, err, *pr)
				}
			}
			s.check(t, k.name, k.tolerance)
		})
	}
}
