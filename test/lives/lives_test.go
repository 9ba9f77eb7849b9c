// Package lives lets fleets live, as users have them, and judges what their lives cost:
// the starts beside the fewest possible with foresight, the longest time that a task was
// missing, and the most starts of one task. This prints the table, and writes it for
// BENCHMARKS.md:
//
//	go test ./test/lives -run TestLives -v -write
package lives

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

var write = flag.Bool("write", false, "write the table for BENCHMARKS.md into testdata/lives.md")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// life is what happens to a fleet.
type life struct {
	name string
	size size // 50 workers, 2,000 copies and the zones abc, where it says nothing
	// before happens first, and is not judged.
	before func(f *fleet)
	live   func(f *fleet)
	// fewest returns the fewest starts for a leader that knows the whole life. It runs what
	// is missing as soon as it may, and gives each worker its even share at last, and also in
	// between where the fleet rests for long. With weights, a few heavy tasks can be an even
	// share, so the starts can be fewer still.
	fewest func(f *fleet) int
	// uneven: no leader can make the loads equal with two copies.
	uneven bool
	// soon bounds the time from the last event to the last start. 0 is no bound.
	soon   time.Duration
	bounds bounds
}

// bounds are the most that a life may cost, by kind. A life has the kinds that have a bound.
type bounds map[kind]cost

// cost is what a life costs.
type cost struct {
	starts int
	gap    float64 // the longest time that a task had too few copies, in seconds
	most   int     // starts of one task
	lost   int     // copies that ended with their worker
}

func atMost(starts int, gap float64, most, lost int) cost { return cost{starts, gap, most, lost} }

func (c cost) within(b cost) bool {
	return c.starts <= b.starts && c.gap <= b.gap && c.most <= b.most && c.lost <= b.lost
}

// result is what a life has cost.
type result struct {
	cost
	fewest  int
	settled time.Duration // from the last event of the life to the last start
}

func TestLives(t *testing.T) {
	results := make([][len(kinds)]*result, len(lives))
	t.Cleanup(func() { show(t, results) })
	for i, l := range lives {
		for k, b := range l.bounds {
			t.Run(l.name+"/"+kinds[k], func(t *testing.T) {
				t.Parallel()
				r := l.judge(t, k)
				if l.soon > 0 {
					assert.LessOrEqual(t, r.settled, l.soon)
				}
				results[i][k] = r
				if !r.within(b) {
					t.Errorf("starts, gap, most, lost: %v; at most %v", r.cost, b)
				}
			})
		}
	}
}

// judge lets a fleet live, and returns what it cost.
func (l *life) judge(t *testing.T, k kind) *result {
	var r result
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, k, size{cmp.Or(l.size.workers, 50), cmp.Or(l.size.copies, 2000), cmp.Or(l.size.zones, "abc"), l.size.timeout})
		defer f.run()()
		f.settle(5 * tick)
		if l.before != nil {
			l.before(f)
			f.settle(quiet)
		}
		f.reset()
		r.fewest = l.fewest(f)
		f.pass(tick / 3) // so that no event coincides with a tick
		l.live(f)
		ended := time.Now()
		f.settle(quiet)
		f.mu.Lock()
		defer f.mu.Unlock()
		for name, task := range f.tasks {
			assert.Equal(t, task.wanted, task.running, "running copies of %s", name)
		}
		assert.Zero(t, f.twice, "starts of a copy too many")
		if k != weights && !l.uneven {
			least, greatest := f.loads()
			assert.LessOrEqual(t, greatest-least, 1, "the spread")
		}
		r.cost, r.settled = f.cost, max(0, f.last.Sub(ended))
		r.gap = f.longest.Seconds()
	})
	return &r
}

// show prints the results as a table, a line for each kind. With -write, it writes one with a
// line for each life.
func show(t *testing.T, results [][len(kinds)]*result) {
	var text, page strings.Builder
	fmt.Fprintf(&text, "\n%-48s %-8s %6s / %6s %7s %8s %7s %5s %5s %8s\n", "life", "kind", "starts", "fewest", "", "needless", "gap", "most", "lost", "settled")
	fmt.Fprintf(&page, "| %-48s | %-20s | %-20s | %-20s | %-20s |\n|%s\n", "", "plain", "zones", "weights", "labels",
		strings.Repeat("-", 50)+"|"+strings.Repeat(strings.Repeat("-", 21)+":|", len(kinds)))
	for i, l := range lives {
		fmt.Fprintf(&page, "| %-48s ", l.name)
		for k, r := range results[i] {
			if r == nil {
				fmt.Fprintf(&page, "| %20s ", "")
				continue
			}
			ratio := fmt.Sprintf("%d/0", r.starts)
			if r.fewest > 0 {
				ratio = fmt.Sprintf("%.2f", float64(r.starts)/float64(r.fewest))
			}
			fmt.Fprintf(&text, "%-48s %-8s %6d / %6d %7s %8d %5.1f s %5d %5d %6.1f s\n", l.name, kinds[k],
				r.starts, r.fewest, ratio, r.starts-r.fewest, r.gap, r.most, r.lost, r.settled.Seconds())
			fmt.Fprintf(&page, "| %20s ", fmt.Sprintf("%s, %.1f s, %d", ratio, r.gap, r.most))
		}
		page.WriteString("|\n")
	}
	t.Log(text.String())
	if *write {
		require.NoError(t, os.WriteFile("testdata/lives.md", []byte(page.String()), 0o644))
	}
}
