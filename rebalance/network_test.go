package rebalance

// The network against a plain flow of least cost, which sends one unit after the other.

import (
	flags "flag"
	"fmt"
	"iter"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	networkProblems = flags.Int("network.problems", 2_000, "how many random networks to solve")
	networkSeed     = flags.Uint64("network.seed", 1, "the number of the first random network; 0 draws one")
)

// The reference counts a copy that is placed, load²/share and a start as one number.
const (
	startCost   = 1
	squareCost  = 1_000         // times twelve for a share of 1
	placeCost   = 1_000_000_000 // for the last tier
	tierFactor  = 1_000
	shareFactor = 12 // a multiple of all shares
)

// reference is a flow of least cost with edges for single units of load.
type reference struct {
	from, to []int
	room     []int
	cost     []int64
}

func (r *reference) edge(from, to, room int, cost int64) {
	r.from = append(r.from, from, to)
	r.to = append(r.to, to, from)
	r.room = append(r.room, room, 0)
	r.cost = append(r.cost, cost, -cost)
}

// solve sends units from node 0 to node 1 while that lowers the cost, and returns the cost.
func (r *reference) solve(nodes int) (total int64) {
	for {
		dist, via := make([]int64, nodes), make([]int, nodes)
		for v := range dist {
			dist[v], via[v] = math.MaxInt64, -1
		}
		dist[0] = 0
		for changed := true; changed; {
			changed = false
			for e, v := range r.from {
				if w := r.to[e]; r.room[e] > 0 && dist[v] < math.MaxInt64 && dist[v]+r.cost[e] < dist[w] {
					dist[w], via[w], changed = dist[v]+r.cost[e], e, true
				}
			}
		}
		if dist[1] >= 0 {
			return total
		}
		total += dist[1]
		for v := 1; v != 0; v = r.from[via[v]] {
			r.room[via[v]]--
			r.room[via[v]^1]++
		}
	}
}

// least returns the least cost of a network.
func least(n *network) int64 {
	classes, workers := len(n.need[0]), n.held.workers()
	r := &reference{}
	place := int64(placeCost)
	for _, tier := range slices.Backward(n.need) {
		for k, c := range tier {
			r.edge(0, 2+k, int(c), -place)
		}
		place *= tierFactor
	}
	copies := 0
	for _, tier := range n.need {
		for _, c := range tier {
			copies += int(c)
		}
	}
	for w := range workers {
		own, fresh := 2+classes+w, 2+classes+workers+w
		for _, x := range n.held.row(int32(w)) {
			r.edge(2+int(x.class), own, int(x.copies), 0)
		}
		for k := range classes {
			if n.may == nil || n.may[k] == nil || slices.Contains(n.may[k], n.kindOf(int32(w))) {
				r.edge(2+k, fresh, copies, startCost)
			}
		}
		r.edge(fresh, own, int(n.gainOf(int32(w))), 0)
		base := n.baseOf(int32(w))
		for c := base; c < min(base+int32(copies), n.limitOf(int32(w))); c++ {
			r.edge(own, 1, 1, squareCost*int64(2*c+1)*int64(shareFactor/n.shareOf(int32(w))))
		}
	}
	return r.solve(2 + classes + 2*workers)
}

// score returns the cost of what a network decided, and the first rule that it breaks.
func score(n *network) (total int64, broken string) {
	classes := len(n.need[0])
	placed := make([]int32, classes)
	starts := 0
	for w := range int32(n.held.workers()) {
		held := make([]int32, classes)
		for _, x := range n.held.row(w) {
			held[x.class] = x.copies
		}
		load, gained, before := n.baseOf(w), int32(0), int32(-1)
		for _, x := range n.count.row(w) {
			if x.class <= before || x.copies <= 0 {
				return 0, fmt.Sprintf("worker %d: class %d comes after %d", w, x.class, before)
			}
			before = x.class
			placed[x.class] += x.copies
			load += x.copies
			fresh := max(0, x.copies-held[x.class])
			gained += fresh
			if fresh > 0 && n.may != nil && n.may[x.class] != nil && !slices.Contains(n.may[x.class], n.kindOf(w)) {
				return 0, fmt.Sprintf("worker %d may not gain class %d", w, x.class)
			}
		}
		if gained > n.gainOf(w) {
			return 0, fmt.Sprintf("worker %d gains %d", w, gained)
		}
		base := n.baseOf(w)
		if load > max(base, n.limitOf(w)) {
			return 0, fmt.Sprintf("worker %d has %d", w, load)
		}
		total += squareCost * (int64(load)*int64(load) - int64(base)*int64(base)) * int64(shareFactor/n.shareOf(w))
		starts += int(gained)
	}
	place := int64(placeCost)
	for range len(n.need) - 1 {
		place *= tierFactor
	}
	left := slices.Clone(placed)
	for _, tier := range n.need {
		for k, c := range tier {
			run := min(c, left[k])
			left[k] -= run
			total -= place * int64(run)
		}
		place /= tierFactor
	}
	for k, c := range left {
		want := int32(0)
		for _, tier := range n.need {
			want += tier[k]
		}
		if c != 0 || placed[k]+n.unplaced[k] != want {
			return 0, fmt.Sprintf("class %d: %d of %d placed, %d not", k, placed[k], want, n.unplaced[k])
		}
	}
	if starts != n.starts {
		return 0, fmt.Sprintf("%d starts, not %d", starts, n.starts)
	}
	return total + int64(starts)*startCost, ""
}

// randomNetwork sets n to a random small network.
func randomNetwork(n *network, rng *rand.Rand) {
	classes, workers, kinds := 1+rng.IntN(8), 1+rng.IntN(8), 1+rng.IntN(8)
	some := func(length, most int) []int32 {
		s := make([]int32, length)
		for i := range s {
			s[i] = int32(rng.IntN(most + 1))
		}
		return s
	}
	n.may, n.kind, n.share, n.base, n.limit, n.gain = nil, nil, nil, nil, nil, nil
	if rng.IntN(8) > 0 {
		n.kind = some(workers, kinds-1)
		n.may = make([][]int32, classes)
		open := 1 + rng.IntN(4)
		for k := range n.may {
			if rng.IntN(4) == 0 {
				continue
			}
			n.may[k] = []int32{}
			for g := range int32(kinds) {
				if rng.IntN(5) < open {
					n.may[k] = append(n.may[k], g)
				}
			}
		}
	}
	if rng.IntN(3) == 0 {
		n.share = some(workers, 3)
		for w := range n.share {
			n.share[w]++
		}
	}
	if rng.IntN(3) == 0 {
		n.base = some(workers, rng.IntN(5))
	}
	optional := func(most int) []int32 {
		s := some(workers, most)
		for w := range s {
			if rng.IntN(2) == 0 {
				s[w] = NoLimit
			}
		}
		return s
	}
	if rng.IntN(3) == 0 {
		n.limit = optional(6)
	}
	if rng.IntN(3) == 0 {
		n.gain = optional(3)
	}
	n.need = nil
	for range 1 + rng.IntN(3) {
		n.need = append(n.need, some(classes, rng.IntN(6)))
	}
	foreign := rng.IntN(4) == 0
	n.held.reset()
	for w := range int32(workers) {
		for k := range int32(classes) {
			may := n.may == nil || n.may[k] == nil || slices.Contains(n.may[k], n.kindOf(w))
			if c := int32(rng.IntN(4)); c > 0 && rng.IntN(2) == 0 && (may || foreign) {
				n.held.add(k, c)
			}
		}
		n.held.endWorker()
	}
}

// networkNumbers yields the numbers of random networks. It prints the first one, and the
// command that repeats a failure.
func networkNumbers(t *testing.T) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		first := *networkSeed
		if first == 0 {
			first = 1 + rand.Uint64N(1e12)
		}
		t.Logf("networks from number %d on: -network.seed=%d", first, first)
		number := first
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("again: go test ./rebalance -count=1 -run '^%s$' -network.seed=%d -network.problems=%d", t.Name(), first, number-first+1)
			}
		})
		for number < first+uint64(*networkProblems) && yield(number) {
			number++
		}
	}
}

// P14, P16: the network places the most, as evenly as possible, with the fewest starts, and
// a second time it changes nothing.
func TestP14_NetworkIsExact(t *testing.T) {
	t.Parallel()
	var n network
	for number := range networkNumbers(t) {
		randomNetwork(&n, rand.New(rand.NewPCG(number, 14)))
		want := least(&n)
		n.solve()
		got, broken := score(&n)
		require.Empty(t, broken, "network %d", number)
		require.Equal(t, want, got, "network %d", number)
		require.True(t, n.proven, "network %d", number)
		require.Equal(t, n.starts, n.bound, "network %d", number)

		var again network
		again.need, again.may, again.kind = n.need, n.may, n.kind
		again.share, again.base, again.limit = n.share, n.base, n.limit
		again.held.copyOf(&n.count)
		again.gain = slices.Clone(n.gain)
		for w, c := range again.gain {
			if c != NoLimit {
				again.gain[w] = 0
			}
		}
		again.solve()
		require.Zero(t, again.starts, "network %d", number)
		require.True(t, slices.Equal(n.count.items, again.count.items), "network %d", number)
	}
}

// P14: no arc of what the flow leaves has a negative cost under the prices, so no cycle has.
func TestP14_NetworkProvesItsStarts(t *testing.T) {
	t.Parallel()
	var n network
	flows := 0
	for number := range uint64(300) {
		rng := rand.New(rand.NewPCG(number, 15))
		randomNetwork(&n, rng)
		n.solve()
		if n.starts == 0 {
			continue
		}
		flows++
		for v := range int32(len(n.price)) {
			for _, a := range n.arcs[n.first[v]:n.first[v+1]] {
				if a.room > 0 {
					require.LessOrEqual(t, n.price[v], a.cost+n.price[a.to], "network %d", number)
				}
			}
		}
	}
	require.Greater(t, flows, 100)
}

// P22: a search that is cut short still places the most, as evenly as possible, and its
// bound is true.
func TestP22_NetworkCutShort(t *testing.T) {
	t.Parallel()
	var n network
	cut, all := 0, 0
	for number := range networkNumbers(t) {
		all++
		randomNetwork(&n, rand.New(rand.NewPCG(number, 16)))
		n.most = 0
		n.solve()
		want, broken := score(&n)
		require.Empty(t, broken, "network %d", number)
		starts := n.starts

		n.most = 1 + int(number%40)
		n.solve()
		got, broken := score(&n)
		require.Empty(t, broken, "network %d", number)
		require.Equal(t, want-int64(starts), got-int64(n.starts), "network %d", number)
		require.LessOrEqual(t, n.bound, starts, "network %d", number)
		if !n.proven {
			cut++
		}
	}
	require.True(t, cut > 100 || all < 2_000, "%d of %d", cut, all)
}

// P23: ten thousand pins on ten thousand workers need no matrix.
func TestP23_NetworkOfPins(t *testing.T) {
	t.Parallel()
	const workers = 10_000
	var n network
	n.need = [][]int32{make([]int32, workers+1)}
	n.held.reset()
	for w := range int32(workers) {
		n.kind = append(n.kind, w)
		n.may = append(n.may, []int32{w})
		n.need[0][w] = w % 7
		n.held.endWorker()
	}
	n.may = append(n.may, nil)
	n.need[0][workers] = 3*workers + 7
	n.solve()
	require.True(t, n.proven)
	require.Less(t, len(n.arcs), 20*workers)
	least, most := workers, 0
	for w := range int32(workers) {
		load := 0
		for _, x := range n.count.row(w) {
			load += int(x.copies)
		}
		least, most = min(least, load), max(most, load)
	}
	require.Equal(t, 6, least)
	require.Equal(t, 7, most)
}

// P16: shares may be any numbers. No copy would cost less elsewhere.
func TestP16_NetworkOfLargeShares(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 17))
	var n network
	for range 200 {
		workers := 1 + rng.IntN(30)
		n.share, n.base = nil, nil
		n.held.reset()
		for range workers {
			n.share = append(n.share, 1+int32(rng.Int64N(math.MaxInt32>>rng.IntN(31))))
			n.base = append(n.base, int32(rng.IntN(3)))
			n.held.endWorker()
		}
		n.need = [][]int32{{rng.Int32N(1 << rng.IntN(29))}}
		n.solve()
		require.Equal(t, int(n.need[0][0]), n.starts)
		load := func(w int) (sum int64) {
			sum = int64(n.base[w])
			for _, x := range n.count.row(int32(w)) {
				sum += int64(x.copies)
			}
			return sum
		}
		product := func(a int64, b int32) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(int64(b))) }
		for v := range workers {
			for w := range workers {
				if last, next := load(v), load(w); v != w && last > int64(n.base[v]) {
					require.LessOrEqual(t, product(2*last-1, n.share[w]).Cmp(product(2*next+1, n.share[v])), 0)
				}
			}
		}
	}
}
