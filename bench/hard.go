package main

import "fmt"

// The hard cases: problems that have to be searched, not only passed over.

// hardCase is one, with what a throw-away prototype of the same algorithm took
// for it when the algorithm was chosen, in multiples of its scan of a million
// pairs: that took it 8 to 10 ms, and the cases 15 to 20, 140 to 220 and 40 to
// 46 ms; the multiples are the larger one of best by best and worst by worst.
type hardCase struct {
	name      string
	prototype float64
	fleet     func(size) fleet
}

var hardCases = []hardCase{
	{"1% over-replicated", 2.0, func(s size) fleet { return s.even().hundredthOver() }},
	{"random over-replication", 22, func(s size) fleet { return s.even().scattered(s.instances * 3 / 2) }},
	{"wants near the number of workers", 5.0, func(s size) fleet { return crowded(s.instances/100, 100) }},
}

// hard is what came of one case.
type hard struct {
	hardCase
	pairs, workers int
	scan, ownScan  samples // of the even fleet; of the case itself
	took           samples
	outcome        outcome
}

// measureHard measures the hard cases that go with size s.
func measureHard(cfg config, s size) ([]hard, error) {
	var found []hard
	even := s.even()
	for _, c := range hardCases {
		cfg.log("hard cases of %s: %s", s, c.name)
		now := c.fleet(s)
		h := hard{hardCase: c, pairs: now.pairs(), workers: now.workers()}
		a := now.attempt(false)
		times, err := race(cfg.rounds, []entrant{
			{name: "scan", warm: true, run: newScan(even).run},
			{name: "its scan", warm: true, run: newScan(now).run},
			{name: us, warm: true, run: a.plan},
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		if h.outcome, err = a.judge(true); err != nil {
			return nil, fmt.Errorf("%s: %w", c.name, err)
		}
		h.scan, h.ownScan, h.took = times[0], times[1], times[2]
		found = append(found, h)
	}
	return found, nil
}
