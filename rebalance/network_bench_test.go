package rebalance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// networkFleet sets n to a fleet at its best: so many copies of classes on workers. With few
// kinds, a class may use half of 16 kinds; otherwise each worker has a kind of its own. The
// last workers, as many as join, are new: they hold nothing.
func networkFleet(t testing.TB, n *network, copies, workers, classes, joining int, few bool) {
	rng := rand.New(rand.NewPCG(1, uint64(classes)))
	kinds := workers + joining
	if few {
		kinds = 16
	}
	n.kind = make([]int32, workers+joining)
	for w := range n.kind {
		n.kind[w] = int32(w % kinds)
	}
	n.may = make([][]int32, classes)
	for k := range n.may {
		for g := range int32(kinds) {
			if rng.IntN(2) == 0 {
				n.may[k] = append(n.may[k], g)
			}
		}
	}
	n.need = [][]int32{make([]int32, classes)}
	for i := range copies {
		n.need[0][i%classes]++
	}
	all := n.kind
	n.kind = all[:workers]
	// Each class is dealt to all its workers, so each worker holds copies of many classes.
	hands, next := make([][]int32, classes), make([]int, classes)
	for w, g := range n.kind {
		for k := range n.may {
			if _, may := slices.BinarySearch(n.may[k], g); may {
				hands[k] = append(hands[k], int32(w))
			}
		}
	}
	dealt := make([]int32, workers*classes)
	for k, c := range n.need[0] {
		for range c {
			dealt[int(hands[k][next[k]%len(hands[k])])*classes+k]++
			next[k]++
		}
	}
	n.held.reset()
	for w := range workers {
		for k := range classes {
			if c := dealt[w*classes+k]; c > 0 {
				n.held.add(int32(k), c)
			}
		}
		n.held.endWorker()
	}
	n.solve()
	require.True(t, n.proven)
	n.held.copyOf(&n.count)
	n.kind = all
	for range joining {
		n.held.endWorker()
	}
}

// lose makes the first worker lost, with all that it holds.
func lose(n *network) {
	n.kind = slices.Clone(n.kind[1:])
	var held classCounts
	held.reset()
	for w := range int32(n.held.workers() - 1) {
		for _, x := range n.held.row(w + 1) {
			held.add(x.class, x.copies)
		}
		held.endWorker()
	}
	n.held.copyOf(&held)
}

func BenchmarkNetwork(b *testing.B) {
	for _, size := range []struct{ copies, workers int }{{100_000, 1_000}, {1_000_000, 10_000}} {
		for _, classes := range []int{8, 32} {
			for _, few := range []bool{true, false} {
				for _, event := range []string{"steady", "one lost", "one joins", "a tenth joins"} {
					kinds := "many"
					if few {
						kinds = "few"
					}
					name := fmt.Sprintf("%dx%d/%d classes/%s kinds/%s", size.copies, size.workers, classes, kinds, event)
					b.Run(name, func(b *testing.B) {
						joining := map[string]int{"one joins": 1, "a tenth joins": size.workers / 10}[event]
						var n network
						networkFleet(b, &n, size.copies, size.workers, classes, joining, few)
						if event == "one lost" {
							lose(&n)
						}
						for b.Loop() {
							n.solve()
						}
						require.True(b, n.proven)
						b.ReportMetric(float64(n.starts), "starts")
					})
				}
			}
		}
	}
}
