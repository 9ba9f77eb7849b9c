package rebalance_test

// Random problems: a base draws the wanted and the running copies, and the twists of a shape
// decide how the workers may change. A problem on which a check fails is made as small
// as possible.

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/rebalance"
)

// shape is a family of problems.
type shape struct {
	name  string
	bases []base
	twist []func(*maker)
}

type base func(*maker)

// maker is a problem in the making.
type maker struct {
	*rand.Rand
	tasks, workers int
	pr             rebalance.Problem
}

var anyBase = []base{
	single, several, crowded, tight, skewed, allOnOne, slightlyOver, pairs, unexpected, settled, chains, empty,
}

// shapes are all families. Those of one base alone are plain problems, in
// which everything is open and nothing is limited.
var shapes = []shape{
	{name: "single", bases: []base{single}},
	{name: "several", bases: []base{several}},
	{name: "crowded", bases: []base{crowded}},
	{name: "tight", bases: []base{tight}},
	{name: "skewed", bases: []base{skewed}},
	{name: "all_on_one", bases: []base{allOnOne}},
	{name: "slightly_over", bases: []base{slightlyOver}},
	{name: "random_pairs", bases: []base{pairs}},
	{name: "unexpected", bases: []base{unexpected}},
	{name: "settled", bases: []base{settled}},
	{name: "chains", bases: []base{chains}},
	{name: "empty", bases: []base{empty}},
	{name: "draining", bases: anyBase, twist: twists(mix(rebalance.Draining))},
	{name: "frozen", bases: anyBase, twist: twists(mix(rebalance.Frozen))},
	{name: "draining_and_frozen", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen))},
	{name: "quarantined", bases: anyBase, twist: twists(mix(rebalance.Quarantined))},
	{name: "states", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen, rebalance.Quarantined))},
	{name: "forbidden", bases: anyBase, twist: twists(fewForbidden)},
	{name: "bad_worker", bases: anyBase, twist: twists(badWorker)},
	{name: "forbidden_states", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen, rebalance.Quarantined), fewForbidden)},
	{name: "pinned", bases: anyBase, twist: twists(pinned)},
	{name: "pinned_draining_and_frozen", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen), pinned)},
	{name: "pinned_once", bases: []base{single, chains, allOnOne, settled}, twist: twists(once, sometimes(mix(rebalance.Draining, rebalance.Frozen)), pinned)},
	{name: "pinned_states", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen, rebalance.Quarantined), pinned)},
	{name: "pinned_forbidden", bases: anyBase, twist: twists(pinned, fewForbidden)},
	{name: "pinned_budget", bases: anyBase, twist: twists(sometimes(mix(rebalance.Draining, rebalance.Frozen)), pinned, budget)},
	{name: "budget", bases: anyBase, twist: twists(budget)},
	{name: "budget_states", bases: anyBase, twist: twists(mix(rebalance.Draining, rebalance.Frozen), budget)},
	{name: "everything", bases: anyBase, twist: twists(
		mix(rebalance.Draining, rebalance.Frozen, rebalance.Quarantined), sometimes(fewForbidden), sometimes(badWorker), sometimes(pinned), sometimes(budget))},
}

func twists(list ...func(*maker)) []func(*maker) { return list }

// make returns the shape's problem of a seed. Most are small; few are not.
func (s shape) make(seed uint64) *rebalance.Problem {
	random := rand.New(rand.NewPCG(seed, 0))
	switch size := random.IntN(100); {
	case size < 70:
		return s.sized(random, 1+random.IntN(5), random.IntN(12))
	case size < 98:
		return s.sized(random, 1+random.IntN(8), random.IntN(31))
	default:
		return s.sized(random, 2+random.IntN(19), random.IntN(101))
	}
}

// large returns a problem of a seed that is larger than those of make.
func (s shape) large(seed uint64) *rebalance.Problem {
	random := rand.New(rand.NewPCG(seed, 1))
	return s.sized(random, 10+random.IntN(31), 50+random.IntN(151))
}

func (s shape) sized(random *rand.Rand, workers, tasks int) *rebalance.Problem {
	m := &maker{Rand: random, workers: workers, tasks: tasks}
	m.pr = rebalance.Problem{
		Want:     make([]int32, m.tasks),
		States:   make([]rebalance.State, m.workers),
		Running:  make([][]int32, m.workers),
		MaxMoves: rebalance.NoLimit,
	}
	s.bases[m.IntN(len(s.bases))](m)
	for _, twist := range s.twist {
		twist(m)
	}
	m.untidy()
	return &m.pr
}

// untidy shuffles every list, and makes some name a task twice.
func (m *maker) untidy() {
	for w, list := range m.pr.Running {
		if len(list) > 0 && m.IntN(10) == 0 {
			m.pr.Running[w] = append(list, list[m.IntN(len(list))])
		}
		if m.IntN(2) == 0 {
			m.Shuffle(len(m.pr.Running[w]), func(i, j int) {
				m.pr.Running[w][i], m.pr.Running[w][j] = m.pr.Running[w][j], m.pr.Running[w][i]
			})
		}
	}
	m.Shuffle(len(m.pr.Forbidden), func(i, j int) {
		m.pr.Forbidden[i], m.pr.Forbidden[j] = m.pr.Forbidden[j], m.pr.Forbidden[i]
	})
}

func (m *maker) hold(worker, task int) {
	m.pr.Running[worker] = append(m.pr.Running[worker], int32(task))
}

// wants gives every task between low and high copies.
func (m *maker) wants(low, high int) {
	for t := range m.pr.Want {
		m.pr.Want[t] = int32(low + m.IntN(high-low+1))
	}
}

// holdWanted gives each wanted copy to a worker of its own, as pick orders
// them; each is lost with the chance of one in lost.
func (m *maker) holdWanted(lost int, pick func() []int) {
	for t, want := range m.pr.Want {
		for _, w := range pick()[:min(int(want), m.workers)] {
			if lost == 0 || m.IntN(lost) > 0 {
				m.hold(w, t)
			}
		}
	}
}

func (m *maker) anywhere() []int { return m.Perm(m.workers) }

func single(m *maker) {
	m.wants(1, 1)
	m.holdWanted(m.IntN(5), m.anywhere)
}

func several(m *maker) {
	m.wants(1, 3)
	m.holdWanted(m.IntN(5), m.anywhere)
}

// crowded wants about as many copies as there are workers.
func crowded(m *maker) {
	m.wants(max(1, m.workers-2), m.workers+2)
	m.holdWanted(1+m.IntN(4), m.anywhere)
}

// tight mixes tasks that few workers run with tasks that nearly all do, some
// with too many copies, some with too few.
func tight(m *maker) {
	for t := range m.pr.Want {
		m.pr.Want[t] = int32(1 + m.IntN(m.workers+1))
		chance := m.IntN(101)
		for w := range m.workers {
			if m.IntN(100) < chance {
				m.hold(w, t)
			}
		}
	}
}

// skewed loads the first workers most.
func skewed(m *maker) {
	m.wants(1, 1+m.IntN(3))
	m.holdWanted(m.IntN(8), func() []int {
		order := make([]int, 0, m.workers)
		rest := m.anywhere()
		for len(rest) > 0 {
			least := 0
			for i := range rest {
				if m.IntN(2) == 0 && rest[i] < rest[least] {
					least = i
				}
			}
			order = append(order, rest[least])
			rest = append(rest[:least], rest[least+1:]...)
		}
		return order
	})
}

func allOnOne(m *maker) {
	m.wants(1, 1+m.IntN(3))
	for t := range m.tasks {
		m.hold(0, t)
	}
}

// deal hands out all wanted copies in turn.
func (m *maker) deal() {
	next := 0
	for t, want := range m.pr.Want {
		for range min(int(want), m.workers) {
			m.hold(next%m.workers, t)
			next++
		}
	}
}

// settled is even, but for some workers that came or lost what they held.
func settled(m *maker) {
	m.wants(1, 1+m.IntN(3))
	m.deal()
	for range m.IntN(1 + m.workers/3) {
		m.pr.Running[m.IntN(m.workers)] = nil
	}
}

// slightlyOver is even, but for a few copies too many.
func slightlyOver(m *maker) {
	m.wants(1, 1+m.IntN(2))
	m.deal()
	for range 1 + m.IntN(1+m.tasks/10) {
		if m.tasks > 0 {
			m.hold(m.IntN(m.workers), m.IntN(m.tasks))
		}
	}
}

// pairs holds each pair of worker and task with the same chance.
func pairs(m *maker) {
	m.wants(1, 1+m.IntN(4))
	chance := 5 + m.IntN(70)
	for w := range m.workers {
		for t := range m.tasks {
			if m.IntN(100) < chance {
				m.hold(w, t)
			}
		}
	}
}

func unexpected(m *maker) {
	pairs(m)
	for t := range m.pr.Want {
		if m.IntN(3) == 0 {
			m.pr.Want[t] = 0
		}
	}
}

// chains wants each task once and has it on two workers that are next to each
// other, so that drops must be chosen together.
func chains(m *maker) {
	m.wants(1, 1)
	for t := range m.tasks {
		w := m.IntN(m.workers)
		m.hold(w, t)
		if m.IntN(4) > 0 {
			m.hold((w+1)%m.workers, t)
		}
	}
}

func empty(m *maker) { m.wants(0, 1+m.IntN(m.workers+2)) }

// mix changes the states of some workers, few or many.
func mix(states ...rebalance.State) func(*maker) {
	return func(m *maker) {
		chance := []int{15, 15, 25, 25, 40, 60, 90, 100}[m.IntN(8)]
		for w := range m.pr.States {
			if m.IntN(100) < chance {
				m.pr.States[w] = states[m.IntN(len(states))]
			}
		}
	}
}

func sometimes(twist func(*maker)) func(*maker) {
	return func(m *maker) {
		if m.IntN(2) == 0 {
			twist(m)
		}
	}
}

func (m *maker) forbid(task, worker int) {
	m.pr.Forbidden = append(m.pr.Forbidden, rebalance.Pair{Task: int32(task), Worker: int32(worker)})
}

func fewForbidden(m *maker) {
	for range 1 + m.IntN(1+m.tasks) {
		if m.tasks > 0 {
			m.forbid(m.IntN(m.tasks), m.IntN(m.workers))
		}
	}
}

// badWorker is avoided by most tasks.
func badWorker(m *maker) {
	bad := m.IntN(m.workers)
	for t := range m.tasks {
		if m.IntN(5) > 0 {
			m.forbid(t, bad)
		}
	}
}

// once wants nothing more than once.
func once(m *maker) {
	for t, want := range m.pr.Want {
		m.pr.Want[t] = min(want, 1)
	}
}

// pinned pins copies on few workers or on many, most or some of what they hold.
func pinned(m *maker) {
	m.pr.Pinned = make([]int32, m.workers)
	chance, most := m.IntN(101), m.IntN(2) == 0
	for w, list := range m.pr.Running {
		if m.IntN(100) >= chance {
			continue
		}
		m.pr.Pinned[w] = int32(m.IntN(len(list) + 1))
		if most {
			m.pr.Pinned[w] = max(m.pr.Pinned[w], int32(m.IntN(len(list)+1)))
		}
	}
}

func budget(m *maker) { m.pr.MaxMoves = m.IntN(1 + m.IntN(8)) }

// shrink drops tasks, workers, copies and limits for as long as the same
// clause fails, but not for longer than half a minute.
func shrink(pr *rebalance.Problem, err error, examine func(*rebalance.Problem) error) *rebalance.Problem {
	clause, _, _ := strings.Cut(err.Error(), ":")
	fails := func(pr *rebalance.Problem) bool {
		err := examine(pr)
		return err != nil && strings.HasPrefix(err.Error(), clause)
	}
	small, began := clone(pr), time.Now()
	for again := fails(small); again; {
		again = false
		for _, try := range smaller(small) {
			if time.Since(began) > 30*time.Second {
				return small
			}
			if fails(try) {
				small, again = try, true
				break
			}
		}
	}
	return small
}

// smaller returns all problems that lack one thing of this one.
func smaller(pr *rebalance.Problem) (list []*rebalance.Problem) {
	change := func(f func(c *rebalance.Problem)) {
		c := clone(pr)
		f(c)
		list = append(list, c)
	}
	for w := range pr.States {
		change(func(c *rebalance.Problem) { dropWorker(c, int32(w)) })
	}
	for t := range pr.Want {
		change(func(c *rebalance.Problem) { dropTask(c, int32(t)) })
	}
	for w, list := range pr.Running {
		for i := range list {
			change(func(c *rebalance.Problem) {
				if c.Running[w] = slices.Delete(c.Running[w], i, i+1); c.Pinned != nil {
					c.Pinned[w] = min(c.Pinned[w], int32(len(c.Running[w])))
				}
			})
		}
	}
	for i := range pr.Forbidden {
		change(func(c *rebalance.Problem) { c.Forbidden = slices.Delete(c.Forbidden, i, i+1) })
	}
	for w, s := range pr.States {
		if s != rebalance.Open {
			change(func(c *rebalance.Problem) { c.States[w] = rebalance.Open })
		}
	}
	for t, want := range pr.Want {
		if want > 1 {
			change(func(c *rebalance.Problem) { c.Want[t]-- })
		}
	}
	for w, n := range pr.Pinned {
		if n > 0 {
			change(func(c *rebalance.Problem) { c.Pinned[w]-- })
		}
	}
	if pr.MaxMoves >= 0 {
		change(func(c *rebalance.Problem) { c.MaxMoves = rebalance.NoLimit })
	}
	if pr.Class != nil {
		change(func(c *rebalance.Problem) { c.Class, c.Kind, c.May = nil, nil, nil })
	}
	if pr.Weight != nil {
		change(func(c *rebalance.Problem) { c.Weight = nil })
	}
	for _, of := range []func(*rebalance.Problem) *[]int32{
		func(c *rebalance.Problem) *[]int32 { return &c.Zone },
		func(c *rebalance.Problem) *[]int32 { return &c.Share },
		func(c *rebalance.Problem) *[]int32 { return &c.MaxTasks },
		func(c *rebalance.Problem) *[]int32 { return &c.MaxPerZone },
		func(c *rebalance.Problem) *[]int32 { return &c.Pinned },
	} {
		if *of(pr) != nil {
			change(func(c *rebalance.Problem) { *of(c) = nil })
		}
	}
	return list
}

func dropWorker(pr *rebalance.Problem, worker int32) {
	w := int(worker)
	pr.States, pr.Running = slices.Delete(pr.States, w, w+1), slices.Delete(pr.Running, w, w+1)
	for _, by := range []*[]int32{&pr.Pinned, &pr.Kind, &pr.Zone, &pr.Share, &pr.MaxTasks} {
		if *by != nil {
			*by = slices.Delete(*by, w, w+1)
		}
	}
	pr.Forbidden = slices.DeleteFunc(pr.Forbidden, func(p rebalance.Pair) bool { return p.Worker == worker })
	for i, p := range pr.Forbidden {
		if p.Worker > worker {
			pr.Forbidden[i].Worker--
		}
	}
}

func dropTask(pr *rebalance.Problem, task int32) {
	for _, by := range []*[]int32{&pr.Want, &pr.Class, &pr.MaxPerZone} {
		if *by != nil {
			*by = slices.Delete(*by, int(task), int(task)+1)
		}
	}
	if pr.Weight != nil {
		pr.Weight = slices.Delete(pr.Weight, int(task), int(task)+1)
	}
	for w := range pr.Running {
		pr.Running[w] = slices.DeleteFunc(pr.Running[w], func(t int32) bool { return t == task })
		for i, t := range pr.Running[w] {
			if t > task {
				pr.Running[w][i]--
			}
		}
		if pr.Pinned != nil {
			pr.Pinned[w] = min(pr.Pinned[w], int32(len(pr.Running[w])))
		}
	}
	pr.Forbidden = slices.DeleteFunc(pr.Forbidden, func(p rebalance.Pair) bool { return p.Task == task })
	for i, p := range pr.Forbidden {
		if p.Task > task {
			pr.Forbidden[i].Task--
		}
	}
}
