//go:build peers

package main

// The quality of plans under rules: beside franz-go with members of unequal subscriptions, on
// packings with a known optimum, and beside two simple ways while one task grows hot.

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// quality holds what plans reach, whatever time they take.
type quality struct {
	subscriptions []subscribed
	packings      []packing
	drifts        []drift
}

func measureQuality(cfg config) (quality, error) {
	var q quality
	var err error
	cfg.log("plans under rules: franz-go with unequal subscriptions")
	if q.subscriptions, err = compareSubscriptions(cfg); err != nil {
		return q, err
	}
	cfg.log("plans under rules: packings and a hot task")
	if q.packings, err = pack(cfg); err != nil {
		return q, err
	}
	q.drifts, err = driftAway(cfg)
	return q, err
}

// subscribed is one event of a group whose members subscribe to random halves of the topics.
type subscribed struct {
	event        string
	ours, theirs outcome
	bound        int // fewest starts
	took         [2]samples
}

// packing is a set of weights with which all loads can be equal.
type packing struct {
	pieces int     // of a worker
	worst  float64 // the highest load by the optimum, in the worst of all sets
}

// pack plans packings: each worker's load of a million is cut into random pieces.
func pack(cfg config) ([]packing, error) {
	const load, workers = 1_000_000, 100
	sets := 20
	if cfg.quick {
		sets = 2
	}
	var found []packing
	for _, pieces := range []int{3, 5, 10, 20, 50} {
		p := packing{pieces: pieces}
		for seed := range sets {
			random := rand.New(rand.NewPCG(uint64(seed), uint64(pieces)))
			r := ruled{fleet: fleet{held: make([][]int32, workers)}}
			for range workers {
				cuts := []int64{0, load}
				for len(cuts) <= pieces {
					if cut := 1 + random.Int64N(load-1); !slices.Contains(cuts, cut) {
						cuts = append(cuts, cut)
					}
				}
				slices.Sort(cuts)
				for i := range pieces {
					r.weight, r.want = append(r.weight, cuts[i+1]-cuts[i]), append(r.want, 1)
				}
			}
			after, err := r.settled()
			if err != nil {
				return nil, err
			}
			p.worst = max(p.worst, float64(slices.Max(after.loads()))/load)
		}
		found = append(found, p)
	}
	return found, nil
}

// loads returns the weight that each worker runs.
func (r ruled) loads() []int64 {
	loads := make([]int64, len(r.held))
	for w, list := range r.held {
		for _, t := range list {
			loads[w] += r.weight[t]
		}
	}
	return loads
}

// drift is the result of one way to place tasks of which another one grows hot every ten
// terms, and cools down again.
type drift struct {
	way     string
	highest float64 // the highest load by the mean load, the mean of all terms
	moves   float64 // in a term, on average
}

// driftAway runs 200 terms with this library, with "the least loaded takes what is new, and
// the fullest gives its largest task while that helps", and with a hash.
func driftAway(cfg config) ([]drift, error) {
	s, terms := size{10_000, 100, 1}, 200
	if cfg.quick {
		s, terms = size{1_000, 10, 1}, 20
	}
	ways := []struct {
		name string
		plan func(ruled) (ruled, error)
	}{
		{us, ruled.settled},
		{"greedy least-loaded", ruled.greedy},
		{"hash", ruled.hashed},
	}
	var found []drift
	for _, way := range ways {
		d := drift{way: way.name}
		random := rand.New(rand.NewPCG(9, 9))
		now, err := way.plan(weighted(s, true))
		if err != nil {
			return nil, err
		}
		base := slices.Clone(now.weight)
		hot := -1
		for term := range terms {
			if term%10 == 0 {
				hot = random.IntN(len(base))
			}
			now.weight = slices.Clone(base)
			for t := range now.weight {
				now.weight[t] = max(1, base[t]*(97+random.Int64N(7))/100)
			}
			now.weight[hot] = base[hot] * 10 * int64(1+min(term%10, 9-term%10))
			next, err := way.plan(now)
			if err != nil {
				return nil, fmt.Errorf("%s, term %d: %w", way.name, term, err)
			}
			o, err := judge(now.fleet, next.held)
			if err != nil {
				return nil, fmt.Errorf("%s, term %d: %w", way.name, term, err)
			}
			loads, sum := next.loads(), int64(0)
			for _, load := range loads {
				sum += load
			}
			d.highest += float64(slices.Max(loads)) * float64(len(loads)) / float64(sum) / float64(terms)
			d.moves += float64(o.moves) / float64(terms)
			now = next
		}
		found = append(found, d)
	}
	return found, nil
}

// greedy evens the loads as simple controllers do: the fullest worker gives its largest task
// that makes the least loaded worker no fuller than it was itself, as long as it has such a task.
func (r ruled) greedy() (ruled, error) {
	loads := r.loads()
	r.held = slices.Clone(r.held)
	for {
		from, to := slices.Index(loads, slices.Max(loads)), slices.Index(loads, slices.Min(loads))
		best := -1
		for i, t := range r.held[from] {
			if loads[to]+r.weight[t] < loads[from] && (best < 0 || r.weight[t] > r.weight[r.held[from][best]]) {
				best = i
			}
		}
		if best < 0 {
			return r, nil
		}
		t := r.held[from][best]
		r.held[from] = slices.Delete(slices.Clone(r.held[from]), best, best+1)
		r.held[to] = append(slices.Clone(r.held[to]), t)
		loads[from] -= r.weight[t]
		loads[to] += r.weight[t]
	}
}

// hashed places each task by a hash of its number.
func (r ruled) hashed() (ruled, error) {
	held := make([][]int32, len(r.held))
	for t := range r.want {
		w := scramble(uint64(t)) % uint64(len(held))
		held[w] = append(held[w], int32(t))
	}
	r.held = held
	return r, nil
}

func (q quality) tables() []table {
	beside := table{
		Title:   "beside franz-go with unequal subscriptions",
		Columns: []string{"ms", "starts", "fewest", "spread", "franz-go, ms", "franz-go, starts", "franz-go, spread"},
	}
	for _, s := range q.subscriptions {
		beside.add(s.event, ms(s.took[0].median()), count(s.ours.moves), count(s.bound), count(s.ours.spread),
			ms(s.took[1].median()), count(s.theirs.moves), count(s.theirs.spread))
	}
	packings := table{Title: "perfect packings", Columns: []string{"highest load beyond the optimum, %"}}
	for _, p := range q.packings {
		packings.add(fmt.Sprintf("%d pieces a worker", p.pieces), number(100*(p.worst-1)))
	}
	drifts := table{Title: "a hot task", Columns: []string{"highest load by the mean", "moves a term"}}
	for _, d := range q.drifts {
		drifts.add(d.way, number(d.highest), number(d.moves))
	}
	return []table{beside, packings, drifts}
}
