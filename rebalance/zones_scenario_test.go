package rebalance

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// zoneFleet is a fleet of workers in zones and what they run, for terms one after the
// other. All workers may run all tasks.
type zoneFleet struct {
	zones   int
	zone    []int32 // by worker, None: it left
	silent  []bool  // by worker
	running [][]int32
	wanted  int32
	tasks   int
	quotas  zoneQuotas
}

// newZoneFleet returns a fleet that runs nothing.
func newZoneFleet(tasks int, wanted int32, sizes ...int) *zoneFleet {
	f := &zoneFleet{zones: len(sizes), wanted: wanted, tasks: tasks}
	for z, size := range sizes {
		for range size {
			f.join(z)
		}
	}
	return f
}

func (f *zoneFleet) join(z int) int {
	f.zone, f.silent, f.running = append(f.zone, int32(z)), append(f.silent, false), append(f.running, nil)
	f.zones = max(f.zones, z+1)
	return len(f.zone) - 1
}

// input sets the input of quotas from the fleet.
func (f *zoneFleet) input() {
	q := &f.quotas
	n := f.tasks * f.zones
	q.zones = f.zones
	q.wanted, q.target = sized(q.wanted, f.tasks), sized(q.target, f.tasks)
	q.held, q.fixed, q.holder = sized(q.held, n), sized(q.fixed, n), sized(q.holder, n)
	q.able, q.width = sized(q.able, f.zones), sized(q.width, f.zones)
	q.zone, q.load = slices.Clone(f.zone), sized(q.load, len(f.zone))
	for t := range q.wanted {
		q.wanted[t], q.target[t] = f.wanted, f.wanted
	}
	for w, z := range f.zone {
		if z == None {
			continue
		}
		q.able[z]++
		if f.silent[w] {
			q.zone[w] = None
		} else {
			q.width[z]++
		}
		q.load[w] = int32(len(f.running[w]))
		for _, t := range f.running[w] {
			at := int(t)*f.zones + int(z)
			if f.silent[w] {
				q.fixed[at]++
				q.target[t]--
				continue
			}
			q.held[at]++
			q.holder[at] = int32(w)
		}
	}
}

// term makes the workers run what the quotas say, and returns how many copies started in
// another zone. Inside a zone, copies leave the fullest worker and go to the emptiest.
func (f *zoneFleet) term() (changed int) {
	f.input()
	q := &f.quotas
	q.solve()
	for t := range f.tasks {
		for z := range f.zones {
			at := t*f.zones + z
			for n := q.held[at]; n > q.quota[at]; n-- {
				best := -1
				for w := range f.zone {
					if f.takesPart(w, z) && slices.Contains(f.running[w], int32(t)) && (best < 0 || len(f.running[w]) > len(f.running[best])) {
						best = w
					}
				}
				k := slices.Index(f.running[best], int32(t))
				f.running[best] = slices.Delete(f.running[best], k, k+1)
			}
			for n := q.held[at]; n < q.quota[at]; n++ {
				best := -1
				for w := range f.zone {
					if f.takesPart(w, z) && !slices.Contains(f.running[w], int32(t)) && (best < 0 || len(f.running[w]) < len(f.running[best])) {
						best = w
					}
				}
				f.running[best] = append(f.running[best], int32(t))
				changed++
			}
		}
	}
	return changed
}

func (f *zoneFleet) takesPart(w, z int) bool { return int(f.zone[w]) == z && !f.silent[w] }

// loads returns the copies by zone.
func (f *zoneFleet) loads() []int {
	loads := make([]int, f.zones)
	for w, z := range f.zone {
		if z != None {
			loads[z] += len(f.running[w])
		}
	}
	return loads
}

func TestP13_FirstWorkerOfAZoneMovesItsShare(t *testing.T) {
	f := newZoneFleet(1000, 3, 10, 10, 10)
	f.term()
	if n := f.term(); n != 0 {
		t.Fatalf("a settled fleet moves %d copies", n)
	}
	f.join(3) // a new zone, or a misspelt one
	if n := f.term(); n < 96 || n > 97 {
		t.Errorf("the first worker of a fourth zone gets %d copies, its share is 3000/31", n)
	}
	if n := f.term(); n != 0 {
		t.Errorf("a settled fleet moves %d copies", n)
	}
}

func TestP13_SilentZoneMovesNothing(t *testing.T) {
	f := newZoneFleet(300, 3, 10, 10, 10, 5)
	f.term()
	for _, silent := range []bool{true, false, true, false} {
		for w, z := range f.zone {
			if z == 1 {
				f.silent[w] = silent
			}
		}
		if n := f.term(); n != 0 {
			t.Errorf("a zone that is silent (%v) moves %d copies", silent, n)
		}
	}
}

func TestP13_LostZoneComesBack(t *testing.T) {
	f := newZoneFleet(300, 3, 10, 10, 10)
	f.term()
	for w, z := range f.zone {
		if z == 2 {
			f.zone[w], f.running[w] = None, nil
		}
	}
	if n := f.term(); n != 300 {
		t.Errorf("%d copies start, the lost zone ran 300", n)
	}
	if loads := f.loads(); loads[0] != 450 || loads[1] != 450 {
		t.Errorf("loads by zone %v", loads)
	}
	for range 10 {
		f.join(2)
	}
	if n := f.term(); n != 300 {
		t.Errorf("%d copies move to a zone with room for 300", n)
	}
}

func TestP13_FlickeringZonesMakeNoStorm(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	f := newZoneFleet(300, 3, 10, 10, 10)
	f.term()
	guests := []int{}
	for term := range 60 {
		change := 0 // copies that must start or may move: those of the workers that come and go
		if len(guests) > 0 && rng.IntN(2) == 0 {
			w := guests[0]
			guests = guests[1:]
			change += len(f.running[w])
			f.zone[w], f.running[w] = None, nil
		} else {
			guests = append(guests, f.join(3+rng.IntN(4)))
			change += 31
		}
		// Caps may change by one copy of a task only if the number of zones that count does.
		if n := f.term(); n > 2*change+10 {
			t.Errorf("term %d: %d copies change zone, %d had to", term, n, change)
		}
	}
}

// TestP15_EmptyZoneFillsFromAllWorkers tests that the copies that go to an empty zone come
// evenly from the workers of the others.
func TestP15_EmptyZoneFillsFromAllWorkers(t *testing.T) {
	for _, zones := range []int{2, 3} {
		sizes := make([]int, zones)
		for z := range sizes {
			sizes[z] = 12 / zones
		}
		f := newZoneFleet(120, 2, sizes...)
		f.term()
		before := make([]int, len(f.running))
		for w, list := range f.running {
			before[w] = len(list)
		}
		for range 4 {
			f.join(zones)
		}
		if n := f.term(); n != 60 {
			t.Errorf("%d zones: %d copies move, the new zone's share is 60", zones, n)
		}
		for w, n := range before {
			if left := n - len(f.running[w]); left < 4 || left > 6 {
				t.Errorf("%d zones: %d copies leave worker %d, 5 of %d should", zones, left, w, n)
			}
		}
	}
}

// TestP13_ManyZones tests the simple way that more than pathZones zones take.
func TestP13_ManyZones(t *testing.T) {
	sizes := make([]int, 100)
	for z := range sizes {
		sizes[z] = 3
	}
	f := newZoneFleet(2000, 3, sizes...)
	f.term()
	for z, n := range f.loads() {
		if n != 60 {
			t.Errorf("zone %d runs %d copies instead of 60", z, n)
		}
	}
	if n := f.term(); n != 0 {
		t.Errorf("a settled fleet moves %d copies", n)
	}
	w := f.join(7)
	if n := f.term(); n < 10 || n > 20 {
		t.Errorf("%d copies change zone for worker %d, its share is 20", n, w)
	}
}

// zoneBench returns a settled fleet with a copy of each task in each of three zones.
func zoneBench(workers int) *zoneFleet {
	const tasks = 333_334
	f := newZoneFleet(tasks, 3, workers/3+workers%3, workers/3, workers/3)
	of := make([][]int, 3)
	for w, z := range f.zone {
		of[z] = append(of[z], w)
	}
	for t := range int32(tasks) {
		for _, list := range of {
			w := list[int(t)*7919%len(list)]
			f.running[w] = append(f.running[w], t)
		}
	}
	return f
}

func BenchmarkZones(b *testing.B) {
	for _, bench := range []struct {
		name   string
		change func(f *zoneFleet)
	}{
		{"steady", func(*zoneFleet) {}},
		{"one worker joins", func(f *zoneFleet) { f.join(0) }},
		{"a zone of one worker joins", func(f *zoneFleet) { f.join(3) }},
		{"a zone joins", func(f *zoneFleet) {
			for range 3333 {
				f.join(3)
			}
		}},
		{"a zone lost", func(f *zoneFleet) {
			for w, z := range f.zone {
				if z == 2 {
					f.zone[w], f.running[w] = None, nil
				}
			}
		}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			f := zoneBench(10_000)
			bench.change(f)
			f.input()
			b.ReportAllocs()
			for b.Loop() {
				f.quotas.solve()
			}
			starts := 0
			for i, n := range f.quotas.quota {
				starts += int(max(0, n-f.quotas.held[i]))
			}
			b.ReportMetric(float64(starts), "starts")
		})
	}
}

// BenchmarkPlanWithZones plans the whole problem.
func BenchmarkPlanWithZones(b *testing.B) {
	for _, bench := range []struct {
		name   string
		change func(f *zoneFleet)
	}{
		{"steady", func(*zoneFleet) {}},
		{"one worker joins", func(f *zoneFleet) { f.join(0) }},
		{"one worker lost", func(f *zoneFleet) { f.running[5000] = nil }},
		{"a zone of one worker joins", func(f *zoneFleet) { f.join(3) }},
		{"a zone lost", func(f *zoneFleet) { f.dropZone(2) }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			f := zoneBench(10_000)
			bench.change(f)
			pr := f.problem()
			var p Planner
			var plan Plan
			b.ReportAllocs()
			for b.Loop() {
				var err error
				if plan, err = p.Plan(pr); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(plan.Adds), "starts")
			b.ReportMetric(float64(plan.LowerBound), "bound")
		})
	}
}

// dropZone removes the workers of a zone.
func (f *zoneFleet) dropZone(z int32) {
	out := 0
	for w := range f.zone {
		if f.zone[w] != z {
			f.zone[out], f.running[out] = f.zone[w], f.running[w]
			out++
		}
	}
	f.zone, f.running = f.zone[:out], f.running[:out]
}

// problem returns the problem of the fleet.
func (f *zoneFleet) problem() *Problem {
	pr := &Problem{Want: make([]int32, f.tasks), States: make([]State, len(f.zone)), Running: f.running, Zone: f.zone, MaxMoves: NoLimit}
	for t := range pr.Want {
		pr.Want[t] = f.wanted
	}
	return pr
}
