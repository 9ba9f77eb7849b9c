package lives

// The lives, with their bounds.

import (
	"math/rand/v2"
	"time"

	"github.com/stretchr/testify/require"
)

// once are the bounds of a life that starts each copy once.
var once = bounds{
	plain:   atMost(2000, 0.1, 1, 0),
	zones:   atMost(2000, 0.1, 2, 0),
	weights: atMost(2000, 0.1, 1, 0),
	labels:  atMost(2000, 0.1, 1, 0),
}

var lives = []life{
	{
		name:   "rolling update: join, then drain",
		live:   joinThenDrain,
		fewest: all, // from each old worker to a new one
		bounds: bounds{
			plain:   atMost(3978, 0.1, 4, 0),
			zones:   atMost(3984, 0.1, 7, 0),
			weights: atMost(3746, 0.1, 11, 0),
			labels:  atMost(4025, 0.1, 5, 0),
		},
	},
	{
		name:   "rolling update: drain, then join",
		live:   drainThenJoin,
		fewest: allAndShare, // the first worker's tasks have no new worker yet
		bounds: bounds{
			plain:   atMost(4080, 0.1, 5, 0),
			zones:   atMost(4080, 0.1, 7, 0),
			weights: atMost(3766, 0.1, 15, 0),
			labels:  atMost(4080, 0.1, 5, 0),
		},
	},
	{
		name:   "rolling update: join, then drain, held",
		live:   held(joinThenDrain),
		fewest: all,
		bounds: once,
	},
	{
		name:   "rolling update: drain, then join, held",
		live:   held(drainThenJoin),
		fewest: allAndShare,
		bounds: bounds{
			plain:   atMost(2122, 0.1, 4, 0),
			zones:   atMost(2162, 0.1, 6, 0),
			weights: atMost(2111, 0.1, 2, 0),
			labels:  atMost(2176, 0.1, 4, 0),
		},
	},
	{
		name: "rolling update: join and drain together",
		live: func(f *fleet) {
			for i := range f.size.workers {
				f.join(f.names(i, 1, 1)...)
				f.leave(f.names(i, 1, 0)...)
				f.pass(5 * time.Second)
			}
		},
		fewest: all,
		bounds: once,
	},
	{
		name: "rolling update: crash and replace",
		live: func(f *fleet) {
			for i := range f.size.workers {
				f.crash(lease, f.names(i, 1, 0)...)
				f.pass(5 * time.Second)
				f.join(f.names(i, 1, 1)...)
				f.pass(15 * time.Second)
			}
		},
		fewest: all,
		bounds: bounds{
			plain:   atMost(2040, 10.3, 1, 2000),
			zones:   atMost(2040, 10.3, 2, 2000),
			weights: atMost(2044, 10.3, 4, 2009),
			labels:  atMost(2040, 10.3, 1, 2000),
		},
	},
	{
		name:   "rolling update: machine lost, replaced",
		size:   size{workers: 10, copies: 400},
		live:   vanish,
		fewest: all,
		bounds: bounds{
			plain:   atMost(776, 10.3, 6, 400),
			zones:   atMost(806, 10.3, 7, 400),
			weights: atMost(701, 10.3, 8, 527),
			labels:  atMost(827, 10.3, 6, 400),
		},
	},
	{
		name:   "rolling update: machine lost, timeout of 2 s",
		size:   size{workers: 10, copies: 400, timeout: 2 * time.Second},
		live:   vanish,
		fewest: all,
		bounds: bounds{
			plain:   atMost(408, 10.3, 1, 400),
			zones:   atMost(408, 10.3, 2, 400),
			weights: atMost(412, 10.3, 4, 408),
			labels:  atMost(408, 10.3, 1, 400),
		},
	},
	{
		name: "rolling update: all at once",
		live: func(f *fleet) {
			f.join(f.names(0, f.size.workers, 1)...)
			f.leave(f.names(0, f.size.workers, 0)...)
		},
		fewest: all,
		bounds: once,
	},
	{
		name: "restarts within the lease",
		live: func(f *fleet) {
			for _, name := range f.every(1) {
				f.crash(lease, name)
				f.pass(3 * time.Second)
				f.join(name)
				f.pass(5 * time.Second)
			}
		},
		fewest: all, // where they ran
		bounds: bounds{
			plain:   atMost(2040, 4.8, 1, 2000),
			zones:   atMost(2040, 4.8, 2, 2000),
			weights: atMost(2040, 4.8, 1, 2000),
			labels:  atMost(2040, 4.8, 1, 2000),
		},
	},
	{
		name: "restarts after the lease",
		live: func(f *fleet) {
			for _, name := range f.every(1) {
				f.crash(lease, name)
				f.pass(15 * time.Second)
				f.join(name)
				f.pass(5 * time.Second)
			}
		},
		fewest: allAndShare, // each worker's on the one that has just come back, and the last gets its share
		bounds: bounds{
			plain:   atMost(4080, 10.3, 10, 2000),
			zones:   atMost(4080, 10.3, 15, 2000),
			weights: atMost(3745, 10.3, 14, 2654),
			labels:  atMost(4080, 10.3, 10, 2000),
		},
	},
	{
		name:   "a third lost at once", // with a zone of three, if there are zones
		live:   func(f *fleet) { f.crash(lease, f.every(3)...) },
		fewest: third,
		uneven: true, // 17 workers of one zone, and 16 of the other
		bounds: bounds{
			plain:   atMost(694, 10.3, 1, 680),
			zones:   atMost(694, 10.3, 1, 680),
			weights: atMost(713, 10.3, 1, 699),
			labels:  atMost(694, 10.3, 1, 680),
		},
	},
	{
		name:   "a third lost, leases end 0.4 s apart",
		live:   func(f *fleet) { f.crashStaggered(f.every(3)...) },
		fewest: third,
		uneven: true, // 17 workers of one zone, and 16 of the other
		bounds: bounds{
			plain:   atMost(694, 16.7, 1, 680),
			zones:   atMost(694, 16.7, 1, 680),
			weights: atMost(723, 16.7, 2, 699),
			labels:  atMost(694, 16.7, 1, 680),
		},
	},
	{
		name:   "a third back at once",
		before: func(f *fleet) { f.remove(f.every(3)...) },
		live:   func(f *fleet) { f.join(f.every(3)...) },
		fewest: func(f *fleet) int { return 17 * (f.copies / f.size.workers) },
		bounds: bounds{
			plain:   atMost(694, 0.1, 1, 0),
			zones:   atMost(694, 0.1, 1, 0),
			weights: atMost(266, 0.1, 1, 0),
			labels:  atMost(694, 0.1, 1, 0),
		},
	},
	{
		name:   "a third back, 0.4 s apart",
		before: func(f *fleet) { f.remove(f.every(3)...) },
		live:   func(f *fleet) { f.joinEvery(400*time.Millisecond, f.every(3)...) },
		fewest: func(f *fleet) int { return 17 * (f.copies / f.size.workers) },
		bounds: bounds{
			plain:   atMost(830, 0.1, 6, 0),
			zones:   atMost(830, 0.1, 6, 0),
			weights: atMost(381, 0.1, 5, 0),
			labels:  atMost(830, 0.1, 6, 0),
		},
	},
	{
		name:   "a third back, 0.4 s apart, held",
		before: func(f *fleet) { f.remove(f.every(3)...) },
		live:   held(func(f *fleet) { f.joinEvery(400*time.Millisecond, f.every(3)...) }),
		fewest: func(f *fleet) int { return 17 * (f.copies / f.size.workers) },
		bounds: bounds{
			plain:   atMost(694, 0.1, 1, 0),
			zones:   atMost(694, 0.1, 1, 0),
			weights: atMost(266, 0.1, 1, 0),
			labels:  atMost(694, 0.1, 1, 0),
		},
	},
	{
		name:   "half of 6 workers lost at once",
		size:   size{workers: 6, copies: 240, zones: "ab"},
		live:   func(f *fleet) { f.crash(lease, f.every(2)...) },
		fewest: half,
		bounds: bounds{
			plain:   atMost(123, 10.3, 1, 120),
			zones:   atMost(123, 10.3, 1, 120),
			weights: atMost(124, 10.3, 1, 122),
			labels:  atMost(123, 10.3, 1, 120),
		},
	},
	{
		name:   "half of 6 workers lost, leases end 0.4 s apart",
		size:   size{workers: 6, copies: 240, zones: "ab"},
		live:   func(f *fleet) { f.crashStaggered(f.every(2)...) },
		fewest: half,
		bounds: bounds{
			plain:   atMost(123, 11.1, 1, 120),
			zones:   atMost(123, 11.1, 1, 120),
			weights: atMost(124, 11.1, 1, 122),
			labels:  atMost(126, 11.1, 1, 120),
		},
	},
	{
		name: "autoscaling, 10 × 5 join and leave",
		live: func(f *fleet) {
			for i := range 10 {
				five := f.names(50, 5, i)
				f.join(five...)
				f.pass(20 * time.Second)
				f.leave(five...)
				f.pass(20 * time.Second)
			}
		},
		fewest: func(f *fleet) int { return 10 * 2 * shares(5)(f) }, // there and back
		bounds: bounds{
			plain:   atMost(3672, 0.1, 2, 0),
			zones:   atMost(3672, 0.1, 7, 0),
			weights: atMost(1557, 0.1, 22, 0),
			labels:  atMost(3672, 0.1, 5, 0),
		},
	},
	{
		name:   "one joins",
		live:   func(f *fleet) { f.join(f.names(50, 1, 0)...) },
		soon:   tick + 300*time.Millisecond, // in the next term
		fewest: shares(1),
		bounds: bounds{
			plain:   atMost(40, 0.1, 1, 0),
			zones:   atMost(40, 0.1, 1, 0),
			weights: atMost(22, 0.1, 1, 0),
			labels:  atMost(40, 0.1, 1, 0),
		},
	},
	{
		name: "one joins while another hangs",
		live: func(f *fleet) {
			f.impair(true, 0, f.names(0, 1, 0)...)
			f.pass(12 * time.Second)
			f.join(f.names(50, 1, 0)...)
			f.pass(20 * time.Second)
			f.impair(false, 0, f.names(0, 1, 0)...)
		},
		fewest: shares(1),
		bounds: bounds{
			plain:   atMost(40, 0.1, 1, 0),
			zones:   atMost(40, 0.1, 1, 0),
			weights: atMost(22, 0.1, 1, 0),
			labels:  atMost(40, 0.1, 1, 0),
		},
	},
	{
		name:   "ten join, 50 ms apart",
		live:   func(f *fleet) { f.joinEvery(50*time.Millisecond, f.names(50, 10, 0)...) },
		soon:   tick + 300*time.Millisecond,
		fewest: shares(10),
		bounds: bounds{
			plain:   atMost(337, 0.1, 1, 0),
			zones:   atMost(337, 0.1, 1, 0),
			weights: atMost(100, 0.1, 1, 0),
			labels:  atMost(337, 0.1, 1, 0),
		},
	},
	{
		name:   "one of 300 lost, ten others slow",               // others each second
		size:   size{workers: 300, copies: 2000, zones: "baaaa"}, // of the smallest zone
		uneven: true,                                             // 60 workers of one zone, and 240 of the other
		live: func(f *fleet) {
			f.crash(lease, f.names(0, 1, 0)...)
			for range 60 {
				var slow []string
				for _, i := range f.random.Perm(f.size.workers)[:10] {
					slow = append(slow, f.names(i, 1, 0)...)
				}
				f.impair(false, 1500*time.Millisecond, slow...)
				f.pass(tick)
				f.impair(false, 0, slow...)
			}
		},
		fewest: share,
		bounds: bounds{
			plain:   atMost(8, 11.8, 1, 7),
			zones:   atMost(17, 11.8, 1, 16),
			weights: atMost(37, 11.8, 1, 9),
			labels:  atMost(7, 11.8, 1, 7),
		},
	},
	{
		name: "flapping: up for 3 s, away for 20 s, 20 times",
		live: func(f *fleet) {
			w := f.names(0, 1, 0)
			for range 20 {
				f.crash(lease, w...)
				f.pass(20 * time.Second)
				f.join(w...)
				f.pass(3 * time.Second)
			}
		},
		fewest: twoShares, // elsewhere when it dies first, and back when it stays
		bounds: bounds{
			plain:   atMost(164, 10.3, 2, 100),
			zones:   atMost(164, 10.3, 4, 100),
			weights: atMost(107, 10.3, 4, 100),
			labels:  atMost(164, 10.3, 2, 100),
		},
	},
	{
		name: "crash loop: dies 6 s after each start, 20 times",
		live: func(f *fleet) {
			w := f.names(0, 1, 0)
			for range 20 {
				f.crash(lease, w...)
				f.pass(2 * time.Second)
				f.join(w...)
				f.pass(6 * time.Second)
			}
		},
		fewest: twoShares, // elsewhere when it dies first, and back when it stays
		bounds: bounds{
			plain:   atMost(123, 4.8, 2, 100),
			zones:   atMost(123, 4.8, 4, 100),
			weights: atMost(112, 4.8, 2, 100),
			labels:  atMost(123, 4.8, 2, 100),
		},
	},
	{
		name: "removed and added, 100 times",
		live: func(f *fleet) {
			w := f.names(0, 1, 0)
			for range 100 {
				f.remove(w...)
				f.pass(3 * time.Second)
				f.join(w...)
				f.pass(3 * time.Second)
			}
		},
		fewest: twoShares,
		bounds: bounds{
			plain:   atMost(164, 0.3, 2, 200),
			zones:   atMost(164, 0.3, 4, 200),
			weights: atMost(107, 0.3, 4, 200),
			labels:  atMost(164, 0.3, 2, 200),
		},
	},
	{
		name: "drained and undrained, 100 times",
		live: func(f *fleet) {
			w := f.names(0, 1, 0)
			for range 100 {
				f.drain(w...)
				f.pass(3 * time.Second)
				f.undrain(w...)
				f.pass(3 * time.Second)
			}
		},
		fewest: none,
		bounds: bounds{
			plain:   atMost(164, 0.1, 2, 0),
			zones:   atMost(164, 0.1, 4, 0),
			weights: atMost(105, 0.1, 4, 0),
			labels:  atMost(164, 0.1, 2, 0),
		},
	},
	{
		name: "drains come and go, worker by worker",
		live: func(f *fleet) {
			for _, name := range f.every(1) {
				f.drain(name)
				f.pass(5 * time.Second)
				f.undrain(name)
				f.pass(5 * time.Second)
			}
		},
		fewest: none,
		bounds: bounds{
			plain:   atMost(4080, 0.1, 9, 0),
			zones:   atMost(4080, 0.1, 13, 0),
			weights: atMost(3948, 0.1, 9, 0),
			labels:  atMost(4080, 0.1, 9, 0),
		},
	},
	{
		name:   "tasks come and go, 20 copies a second",
		live:   func(f *fleet) { f.churn(60, 20/f.instances()) },
		fewest: func(*fleet) int { return 60 * 20 }, // each new one
		bounds: bounds{
			plain:   atMost(1224, 0.3, 1, 0),
			zones:   atMost(1224, 0.3, 2, 0),
			weights: atMost(1275, 0.3, 2, 0),
			labels:  atMost(1224, 0.3, 1, 0),
		},
	},
	{
		name: "labels edited worker by worker",
		live: func(f *fleet) {
			for _, name := range f.every(1) {
				f.label(false, name)
				f.pass(2 * time.Second)
				f.label(true, name)
				f.pass(2 * time.Second)
			}
		},
		fewest: none,
		bounds: bounds{
			labels: atMost(3203, 0.1, 5, 0),
		},
	},
	{
		name:   "noisy weights, 1%",
		size:   size{workers: 5, copies: 12},
		before: func(f *fleet) { f.weigh(1, 0, false) },
		live:   func(f *fleet) { f.weigh(199, 0.01, false) },
		fewest: none,
		bounds: bounds{
			weights: atMost(0, 0.1, 0, 0),
		},
	},
	{
		name:   "drifting weights, 2% a second",
		size:   size{workers: 10, copies: 200},
		before: func(f *fleet) { f.weigh(1, 0, false) },
		live:   func(f *fleet) { f.weigh(199, 0.02, true) },
		fewest: none,
		bounds: bounds{
			weights: atMost(19, 0.1, 2, 0),
		},
	},
}

func joinThenDrain(f *fleet) {
	for i := range f.size.workers {
		f.join(f.names(i, 1, 1)...)
		f.pass(5 * time.Second)
		f.leave(f.names(i, 1, 0)...)
	}
}

func drainThenJoin(f *fleet) {
	for i := range f.size.workers {
		f.leave(f.names(i, 1, 0)...)
		f.join(f.names(i, 1, 1)...)
		f.pass(5 * time.Second)
	}
}

// held holds moves for an even spread while a fleet lives.
func held(live func(f *fleet)) func(f *fleet) {
	return func(f *fleet) {
		f.Hold(time.Now().Add(time.Hour), "deploy")
		live(f)
		f.Hold(time.Time{}, "deploy")
	}
}

// vanish replaces machines that are lost one after the other: their calls hang.
func vanish(f *fleet) {
	for i := range f.size.workers {
		f.crash(lease, f.names(i, 1, 0)...)
		f.impair(true, 0, f.names(i, 1, 0)...)
		f.pass(5 * time.Second)
		f.join(f.names(i, 1, 1)...)
		f.pass(15 * time.Second)
	}
}

func none(*fleet) int          { return 0 }
func all(f *fleet) int         { return f.copies }
func allAndShare(f *fleet) int { return f.copies + f.copies/f.size.workers }
func share(f *fleet) int       { return f.runs(f.names(0, 1, 0)...) }
func twoShares(f *fleet) int   { return 2 * share(f) }
func third(f *fleet) int       { return f.runs(f.every(3)...) }
func half(f *fleet) int        { return f.runs(f.every(2)...) }

// shares returns the shares of n more workers.
func shares(n int) func(f *fleet) int {
	return func(f *fleet) int { return n * (f.copies / (f.size.workers + n)) }
}

// churn removes n tasks each second, and adds as many.
func (f *fleet) churn(seconds, n int) {
	var ids []int
	for i := range len(f.tasks) {
		ids = append(ids, i)
	}
	for next := len(ids); seconds > 0; seconds-- {
		for _, i := range f.random.Perm(len(ids))[:n] {
			f.unexpect(ids[i])
			ids[i] = next
			f.expect(next)
			next++
		}
		f.pass(time.Second)
	}
}

// weigh updates the weights of all tasks each second, to others than those of their settings.
// They are noisy, and drift if the noise adds up.
func (f *fleet) weigh(seconds int, noise float64, drifts bool) {
	random, tasks := rand.New(rand.NewPCG(2, 11)), f.ListExpectedTasks()
	base := make([]float64, len(tasks))
	for i := range base {
		base[i] = float64(pareto(random))
	}
	for range seconds {
		measured := make(map[string]int64)
		for i, t := range tasks {
			weight := base[i] * (1 + noise*f.random.NormFloat64())
			measured[t.Name] = int64(weight)
			if drifts {
				base[i] = weight
			}
		}
		require.NoError(f.t, f.UpdateWeights(measured))
		f.pass(time.Second)
	}
}
