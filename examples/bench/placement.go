//go:build peers

package main

// Plans under rules: labels, zones and weights. The fleets are those on which the
// prototypes of these plans were measured.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/f8949c05/orchestrator/rebalance"
)

// ruled is a fleet with rules.
type ruled struct {
	fleet
	class, kind []int32 // by task, by worker
	may         [][]int32
	zone        []int32 // by worker
	weight      []int64 // by task
	band        int32
}

// weightBand is the default band of weights, in millionths.
const weightBand = 50_000

func (r ruled) problem() *rebalance.Problem {
	pr := r.fleet.problem()
	pr.Class, pr.Kind, pr.May = r.class, r.kind, r.may
	pr.Zone, pr.Band = r.zone, r.band
	for _, weight := range r.weight {
		pr.Weight = append(pr.Weight, rebalance.RoundWeight(weight))
	}
	return pr
}

// after returns the fleet when the plan is carried out.
func (r ruled) after(plan rebalance.Plan) ruled {
	r.held = r.fleet.after(plan)
	return r
}

// started returns the fleet after a cold start.
func (r ruled) started() (ruled, error) { return ruledCold.to(r).settled() }

// settled returns the fleet after a plan.
func (r ruled) settled() (ruled, error) {
	plan, err := new(rebalance.Planner).Plan(r.problem())
	if err != nil {
		return r, err
	}
	return r.after(plan), nil
}

// joined adds workers, each of the kind and zone of an old one.
func (r ruled) joined(n int) ruled {
	r.fleet = r.fleet.joined(n)
	r.kind, r.zone = repeated(r.kind, n), repeated(r.zone, n)
	return r
}

// repeated appends the first n numbers again, if there are any.
func repeated(numbers []int32, n int) []int32 {
	if numbers == nil {
		return nil
	}
	return append(slices.Clone(numbers), numbers[:n]...)
}

// lost removes the workers for which isLost is true.
func (r ruled) lost(isLost func(w int) bool) ruled {
	var held [][]int32
	var kind, zone []int32
	for w := range r.held {
		if isLost(w) {
			continue
		}
		held = append(held, r.held[w])
		if r.kind != nil {
			kind = append(kind, r.kind[w])
		}
		if r.zone != nil {
			zone = append(zone, r.zone[w])
		}
	}
	r.held, r.kind, r.zone = held, kind, zone
	return r
}

// ruledEvent is a change of a fleet with rules.
type ruledEvent struct {
	name string
	to   func(ruled) ruled
}

var (
	ruledCold   = ruledEvent{"cold", func(r ruled) ruled { r.fleet = cold.to(r.fleet); return r }}
	ruledSteady = ruledEvent{"steady", func(r ruled) ruled { return r }}
	ruledLost   = ruledEvent{"one lost", func(r ruled) ruled { return r.lost(func(w int) bool { return w == 0 }) }}
	ruledJoins  = ruledEvent{"one joins", func(r ruled) ruled { return r.joined(1) }}
	ruledTenth  = ruledEvent{"a tenth joins", func(r ruled) ruled { return r.joined(len(r.held) / 10) }}
	zoneLost    = ruledEvent{"a zone lost", func(r ruled) ruled { return r.lost(func(w int) bool { return r.zone[w] == 0 }) }}
	fourthZone  = ruledEvent{"first of a new zone", func(r ruled) ruled {
		r = r.joined(1)
		r.zone[len(r.zone)-1] = int32(zones)
		return r
	}}
	loadsDrift = ruledEvent{"all loads ±3%", func(r ruled) ruled {
		return r.weighed(5, 1, func(random *rand.Rand) float64 { return 0.97 + 0.06*random.Float64() })
	}}
	tenthDrift = ruledEvent{"a tenth × 0.5 to 2", func(r ruled) ruled {
		return r.weighed(6, 10, func(random *rand.Rand) float64 { return math.Exp2(2*random.Float64() - 1) })
	}}
)

var labelEvents = []ruledEvent{ruledSteady, ruledLost, ruledJoins, ruledTenth}

// weighed multiplies the weight of one task in every few by a random factor.
func (r ruled) weighed(seed uint64, every int, factor func(*rand.Rand) float64) ruled {
	random := rand.New(rand.NewPCG(seed, seed))
	r.weight = slices.Clone(r.weight)
	for t := range r.weight {
		if every == 1 || random.IntN(every) == 0 {
			r.weight[t] = max(1, int64(float64(r.weight[t])*factor(random)))
		}
	}
	return r
}

// pools returns a fleet with pools of workers: half of the tasks may run everywhere, and each
// of the other classes only in its own pool.
func pools(s size, classes int) ruled {
	classes = min(classes, s.workers) // each pool has a worker
	r := ruled{fleet: s.even()}
	r.class, r.kind = make([]int32, len(r.want)), make([]int32, s.workers)
	r.may = make([][]int32, classes)
	for c := 1; c < classes; c++ {
		r.may[c] = []int32{int32(c)}
	}
	for t := range r.class {
		if t%2 == 1 {
			r.class[t] = int32(1 + t/2%(classes-1))
		}
	}
	for w := range r.kind {
		r.kind[w] = int32(w % classes)
	}
	return r
}

// randomKinds returns a fleet in which each worker may run each class with a probability of
// one half.
func randomKinds(s size, classes int) ruled {
	random := rand.New(rand.NewPCG(7, uint64(classes)))
	r := ruled{fleet: s.even()}
	r.class, r.kind = make([]int32, len(r.want)), make([]int32, s.workers)
	r.may = make([][]int32, classes)
	for t := range r.class {
		r.class[t] = int32(t % classes)
	}
	numbers := make(map[uint64]int32)
	for w := range r.kind {
		mask := random.Uint64() & (1<<classes - 1)
		for c := w % s.workers; c < classes; c += s.workers {
			mask |= 1 << c // some worker may run it
		}
		kind, ok := numbers[mask]
		if !ok {
			kind = int32(len(numbers))
			numbers[mask] = kind
			for c := range classes {
				if mask>>c&1 != 0 {
					r.may[c] = append(r.may[c], kind)
				}
			}
		}
		r.kind[w] = kind
	}
	return r
}

// zones is the number of zones of a fleet with zones.
const zones = 3

// zoned returns a fleet with three zones, and three copies of each task.
func zoned(s size) ruled {
	r := ruled{fleet: s.of(3).even(), zone: make([]int32, s.workers)}
	for w := range r.zone {
		r.zone[w] = int32(w % zones)
	}
	return r
}

// weighted returns a fleet with random weights: uniform from 1 to 1000, or lognormal.
func weighted(s size, lognormal bool) ruled {
	random := rand.New(rand.NewPCG(8, 8))
	r := ruled{fleet: s.even(), band: weightBand, weight: make([]int64, s.instances)}
	for t := range r.weight {
		r.weight[t] = 1 + random.Int64N(1000)
		if lognormal {
			r.weight[t] = max(1, int64(1000*math.Exp(random.NormFloat64())))
		}
	}
	return r
}

// ruledCase is a fleet and the events that are measured on it.
type ruledCase struct {
	name   string
	fleet  ruled
	events []ruledEvent
}

// ruledResult is the result of one event.
type ruledResult struct {
	event string
	took  samples
	plan  rebalance.Plan // without its changes
}

// placements are the results of all cases.
type placements struct {
	names   []string
	results [][]ruledResult // by case
	scan    [][]samples     // by case and event: the integer scan, in turn with it
	quality quality
}

func measurePlacement(ctx context.Context, cfg config) (placements, error) {
	var p placements
	var cases []ruledCase
	for _, s := range []size{cfg.small, cfg.big} {
		for _, classes := range []int{8, 32} {
			cases = append(
				cases,
				ruledCase{fmt.Sprintf("labels, %s, %d classes, pools", s, classes), pools(s, classes), labelEvents},
				ruledCase{fmt.Sprintf("labels, %s, %d classes, random kinds", s, classes), randomKinds(s, classes), labelEvents},
			)
		}
	}
	zoneEvents := []ruledEvent{ruledCold, ruledSteady, ruledLost, ruledJoins, zoneLost, fourthZone}
	weightEvents := []ruledEvent{ruledCold, ruledSteady, loadsDrift, tenthDrift, ruledJoins, ruledTenth}
	for _, s := range []size{cfg.small, cfg.big} {
		cases = append(
			cases,
			ruledCase{"zones, " + s.of(3).String(), zoned(s), zoneEvents},
			ruledCase{fmt.Sprintf("weights, %s, uniform", s), weighted(s, false), weightEvents},
			ruledCase{fmt.Sprintf("weights, %s, lognormal", s), weighted(s, true), weightEvents},
		)
	}
	rounds := min(cfg.rounds, 5)
	for _, c := range cases {
		if err := ctx.Err(); err != nil {
			return p, err
		}
		cfg.log("plans under rules: %s", c.name)
		results, scans, err := c.measure(rounds)
		if err != nil {
			return p, fmt.Errorf("%s: %w", c.name, err)
		}
		p.names = append(p.names, c.name)
		p.results, p.scan = append(p.results, results), append(p.scan, scans)
	}
	var err error
	p.quality, err = measureQuality(cfg)
	return p, err
}

// measure measures all events of a case, each in turn with the integer scan.
func (c ruledCase) measure(rounds int) ([]ruledResult, []samples, error) {
	before, err := c.fleet.started()
	if err != nil {
		return nil, nil, err
	}
	var results []ruledResult
	var scans []samples
	for _, e := range c.events {
		now := e.to(before)
		planner, pr := new(rebalance.Planner), now.problem()
		var plan rebalance.Plan
		times, err := race(rounds, []entrant{
			{name: "scan", warm: true, run: newScan(now.fleet).run},
			{name: us, warm: true, run: func() (err error) { plan, err = planner.Plan(pr); return err }},
		})
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := judge(now.fleet, now.after(plan).held); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", e.name, err)
		}
		plan.Changes, plan.Unplaced = nil, nil
		results = append(results, ruledResult{e.name, times[1], plan})
		scans = append(scans, times[0])
	}
	return results, scans, nil
}

// goals returns the goals for the largest size, which is measured last.
func (p placements) goals() []goal {
	var steady, zoned, labelled []figure
	for i, name := range p.names {
		for j, r := range p.results[i] {
			switch {
			case strings.HasPrefix(name, "labels, "):
				labelled = append(labelled, figure{name + ", " + r.event, float64(r.plan.Adds - r.plan.LowerBound)})
			case strings.HasPrefix(name, "weights, ") && r.event == ruledSteady.name:
				steady = append(steady, figure{name, ratio(r.took, p.scan[i][j])})
			case r.event == ruledJoins.name && strings.HasPrefix(name, "zones, "):
				zoned = append(zoned, figure{name + ", " + r.event, float64(ms(r.took.median())) / 105})
			case r.event == zoneLost.name:
				zoned = append(zoned, figure{name + ", " + r.event, float64(ms(r.took.median())) / 167})
			}
		}
	}
	five := p.quality.packings[1]
	return []goal{
		atMost("starts beyond the fewest, with labels", "", 0, labelled...),
		atMost("plan with zones, by the prototype's", "×", 1, zoned...),
		atMost("steady plan by weight, by the integer scan", "×", 2, steady...),
		atMost("highest load of a packing, by the optimum", "×", 1.01, figure{fmt.Sprintf("%d pieces a worker", five.pieces), five.worst}),
	}
}

// tables returns the times of the cases with labels in one table and their starts in
// another, a table for each other case, and those of the quality.
func (p placements) tables() []table {
	times := table{Title: "labels, ms"}
	starts := table{Title: "labels, starts beyond the fewest"}
	for _, e := range labelEvents {
		times.Columns, starts.Columns = append(times.Columns, e.name), append(starts.Columns, e.name)
	}
	tables := []table{{}, {}}
	for i, name := range p.names {
		if fleet, ok := strings.CutPrefix(name, "labels, "); ok {
			var took, beyond []number
			for _, r := range p.results[i] {
				took = append(took, ms(r.took.median()))
				beyond = append(beyond, count(r.plan.Adds-r.plan.LowerBound))
			}
			times.add(fleet, took...)
			starts.add(fleet, beyond...)
			continue
		}
		last, value := "fewest", func(p rebalance.Plan) number { return count(p.LowerBound) }
		if strings.HasPrefix(name, "weights, ") {
			last, value = "highest load by the mean", highest
		}
		t := table{Title: name, Columns: []string{"ms", "× scan", "starts", last}}
		for j, r := range p.results[i] {
			t.add(r.event, ms(r.took.median()), number(ratio(r.took, p.scan[i][j])), count(r.plan.Adds), value(r.plan))
		}
		tables = append(tables, t)
	}
	tables[0], tables[1] = times, starts
	return append(tables, p.quality.tables()...)
}

// highest returns the highest load of a plan, by the mean.
func highest(plan rebalance.Plan) number {
	most, total := int64(0), int64(0)
	for _, load := range plan.Loads {
		most, total = max(most, load.Weight), total+load.Weight
	}
	return number(float64(most) / float64(total) * float64(len(plan.Loads)))
}
