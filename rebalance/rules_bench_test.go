package rebalance_test

// Plans of large fleets in which a rule binds, and what else makes them hard.

import (
	"testing"

	"github.com/f8949c05/orchestrator/rebalance"
)

// labelled is an even fleet with eight labels: each kind of worker runs two classes, and each
// class runs on two kinds.
func labelled(workers, load int) *rebalance.Problem {
	const kinds = 8
	pr := &rebalance.Problem{
		Want: make([]int32, workers*load), Class: make([]int32, workers*load),
		States: make([]rebalance.State, workers), Running: make([][]int32, workers), Kind: make([]int32, workers),
		MaxMoves: rebalance.NoLimit,
	}
	for c := range int32(kinds) {
		may := []int32{c, c + 1}
		if c == kinds-1 {
			may = []int32{0, c}
		}
		pr.May = append(pr.May, may)
	}
	for w := range workers {
		kind := int32(w % kinds)
		pr.Kind[w] = kind
		for i := range load {
			t := int32(w*load + i)
			pr.Running[w] = append(pr.Running[w], t)
			pr.Want[t], pr.Class[t] = 1, (kind+int32(kinds-i%2))%kinds
		}
	}
	return pr
}

// zoned is an even fleet in three zones, with three copies of each task, one in each.
func zoned(workers, load int) *rebalance.Problem {
	pr := even(workers*load/3*3, workers/3*3, 3)
	pr.Zone = make([]int32, len(pr.States))
	for w := range pr.Running {
		zone := w * 3 / len(pr.States)
		pr.Zone[w] = int32(zone)
		pr.Running[w] = nil
	}
	third := len(pr.States) / 3
	for t := range pr.Want {
		for zone := range 3 {
			w := zone*third + (t<<zone+t/third)%third
			pr.Running[w] = append(pr.Running[w], int32(t))
		}
	}
	return pr
}

// unequal is an even fleet with shares from 1 to 4.
func unequal(workers, load int) *rebalance.Problem {
	pr := labelled(workers, load)
	pr.Class, pr.Kind, pr.May = nil, nil, nil
	pr.Share = make([]int32, workers)
	t := int32(0)
	for w := range pr.Running {
		pr.Share[w] = int32(1 + w%4)
		pr.Running[w] = nil
		for range int(pr.Share[w]) * load * 2 / 5 {
			pr.Running[w] = append(pr.Running[w], t)
			t++
		}
	}
	pr.Want = pr.Want[:t]
	return pr
}

// rulings are rules, and what comes with them.
var rulings = []struct {
	name  string
	make  func(workers, load int) *rebalance.Problem
	twist func(pr *rebalance.Problem)
}{
	{"labels", labelled, nil},
	{"labels_20_forbidden", labelled, func(pr *rebalance.Problem) {
		for i := range int32(20) {
			pr.Forbidden = append(pr.Forbidden, rebalance.Pair{Task: 1000 * i, Worker: 7*i + 3})
		}
	}},
	{"labels_100_surplus", labelled, func(pr *rebalance.Problem) {
		for w := range 100 {
			pr.Running[w] = append(pr.Running[w], pr.Running[w+808][0])
		}
	}},
	{"labels_500_surplus", labelled, func(pr *rebalance.Problem) {
		for w := range 500 {
			pr.Running[w] = append(pr.Running[w], pr.Running[w+808][0])
		}
	}},
	{"labels_100_moves", labelled, func(pr *rebalance.Problem) { pr.MaxMoves = 100 }},
	{"labels_no_moves", labelled, func(pr *rebalance.Problem) { pr.MaxMoves = 0 }},
	{"labels_limits", labelled, func(pr *rebalance.Problem) { limitAll(pr, 110) }},
	{"labels_full", labelled, func(pr *rebalance.Problem) { limitAll(pr, 100) }},
	{"labels_overfull", labelled, func(pr *rebalance.Problem) { limitAll(pr, 90) }},
	{"zones", zoned, nil},
	{"zones_100_moves", zoned, func(pr *rebalance.Problem) { pr.MaxMoves = 100 }},
	{"shares", unequal, nil},
	{"shares_all_different", unequal, func(pr *rebalance.Problem) {
		for w := range pr.Share {
			pr.Share[w] = 1_000_000*pr.Share[w]/4 - int32(w%1000)
		}
	}},
	{"shares_100_moves", unequal, func(pr *rebalance.Problem) { pr.MaxMoves = 100 }},
}

func limitAll(pr *rebalance.Problem, most int32) {
	pr.MaxTasks = make([]int32, len(pr.States))
	for w := range pr.MaxTasks {
		pr.MaxTasks[w] = most
	}
}

func BenchmarkRules(b *testing.B) {
	const workers, load = 10_000, 100
	for _, of := range rulings {
		for _, lost := range []struct {
			name  string
			event func(pr *rebalance.Problem)
		}{
			{"steady", func(*rebalance.Problem) {}},
			{"one_lost", func(pr *rebalance.Problem) { pr.States[0] = rebalance.Frozen; pr.Running[0] = nil }},
			{"one_joins", func(pr *rebalance.Problem) { emptied(pr, 1) }},
			{"a_hundredth_joins", func(pr *rebalance.Problem) { emptied(pr, workers/100) }},
		} {
			b.Run(of.name+"/"+lost.name, func(b *testing.B) {
				pr := of.make(workers, load)
				if of.twist != nil {
					of.twist(pr)
				}
				lost.event(pr)
				bench(b, pr)
			})
		}
	}
}

// emptied hands what some workers run to others of their kind, as if they joined now.
func emptied(pr *rebalance.Problem, some int) {
	for w := range some {
		for i, t := range pr.Running[w] {
			to := w + 8*(some+i+1)
			pr.Running[to] = append(pr.Running[to], t)
			if pr.MaxTasks != nil {
				pr.MaxTasks[to] = max(pr.MaxTasks[to], int32(len(pr.Running[to])))
			}
		}
		pr.Running[w] = nil
	}
}
