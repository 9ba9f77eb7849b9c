package replica_test

// Random histories on a backend with faults: no task runs twice, and once the faults end
// everything runs.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

var (
	histories = flag.Int("replica.histories", 30, "random histories of TestNeverTwice")
	firstSeed = flag.Uint64("replica.seed", 1, "the seed of the first random history; 0 draws one")
)

var errFault = errors.New("fault")

// faultyTable is a table that loses, repeats and delays Syncs, and forgets.
type faultyTable struct {
	*memory.Table
	mu     sync.Mutex
	rand   *rand.Rand
	faults bool
	away   bool            // every Sync fails
	cut    map[string]bool // replicas whose Syncs are not answered, by name
	late   sync.WaitGroup
}

func newFaultyTable(seed uint64) *faultyTable {
	return &faultyTable{Table: memory.New(), rand: rand.New(rand.NewPCG(seed, 1)), cut: make(map[string]bool)}
}

// crash cuts a replica off for good: no Sync of it is answered, and no call reaches it.
func (f *faultyTable) crash(c *cluster, name string) {
	c.bus.hang(c.members[name].Status().Address, true)
	c.bus.cut(name, true)
	f.set(func() { f.cut[name] = true })
}

func (f *faultyTable) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	f.mu.Lock()
	away, cut, dice := f.away, f.cut[u.Self.Name], -1
	if f.faults {
		dice = f.rand.IntN(20)
	}
	delay := time.Duration(f.rand.Int64N(int64(2 * testLease)))
	f.mu.Unlock()
	switch {
	case away:
		return replica.View{}, errFault
	case cut:
		<-ctx.Done()
		return replica.View{}, context.Cause(ctx)
	case dice == 0: // lost
		return replica.View{}, errFault
	case dice == 1: // applied, and the answer is lost
		_, _ = f.Table.Sync(ctx, u)
		<-ctx.Done()
		return replica.View{}, context.Cause(ctx)
	case dice == 2: // applied later, also after the caller has given up
		f.later(u, delay)
		<-ctx.Done()
		return replica.View{}, context.Cause(ctx)
	case dice == 3: // applied twice
		f.later(u, delay)
	case dice == 4: // slow
		time.Sleep(delay / 32)
	}
	return f.Table.Sync(ctx, u)
}

func (f *faultyTable) later(u replica.Update, delay time.Duration) {
	f.late.Go(func() {
		time.Sleep(delay)
		_, _ = f.Table.Sync(context.Background(), u)
	})
}

// A seed decides the events and the faults of its history. The replicas draw their pauses
// anew, so the command for a failure runs the history until it fails, up to 100 times.
func TestNeverTwice_RandomHistories(t *testing.T) {
	first := *firstSeed
	if first == 0 {
		first = 1 + rand.Uint64N(1e12)
	}
	t.Logf("histories from seed %d on: -replica.seed=%d", first, first)
	for i := range *histories {
		seed := first + uint64(i)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Cleanup(func() { // a panic ends the test here
				if t.Failed() {
					t.Logf("again: go test ./replica -count=100 -failfast -v -run '^TestNeverTwice_RandomHistories$' -replica.histories=1 -replica.seed=%d", seed)
				}
			})
			history(t, seed)
		})
		if !ok {
			return
		}
	}
}

func history(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 0))
		table := newFaultyTable(seed)
		table.faults = true
		const tasks = 12
		c := newCluster(t, table, tasks)
		// Where the table loses the last epoch, and every replica that knew it ends, a token
		// may fall below an earlier one, since these elections are minutes apart. So half of
		// the histories lose nothing.
		loses := seed%2 == 0
		if !loses {
			c.journal.tokens = make(map[string]uint64)
		}
		c.bus.lateness = table.lateness
		log := func(format string, args ...any) {
			if testing.Verbose() {
				t.Logf("%v "+format, append([]any{time.Now().Format("15:04:05")}, args...)...)
			}
		}
		names := 0
		start := func() {
			names++
			name := fmt.Sprintf("r%d", names)
			log("start %s", name)
			c.start(name)
		}
		pick := func() string {
			var all []string
			for name := range c.members {
				all = append(all, name)
			}
			if len(all) == 0 {
				return ""
			}
			// The order of a map is random, and a history must be repeatable.
			least := all[0]
			for _, n := range all {
				if strings.Compare(n, least) < 0 {
					least = n
				}
			}
			if r.IntN(2) == 0 {
				return least
			}
			greatest := all[0]
			for _, n := range all {
				if strings.Compare(n, greatest) > 0 {
					greatest = n
				}
			}
			return greatest
		}
		start()
		start()
		start()
		backup := table.Backup()
		for range 30 {
			time.Sleep(time.Duration(r.Int64N(int64(2 * testLease))))
			name := pick()
			events := 10
			if !loses {
				events = 8
			}
			switch event := r.IntN(events); event {
			case 0:
				if len(c.members) < 5 {
					start()
				}
			case 1:
				if len(c.members) > 1 {
					log("stop %s", name)
					if err := c.end(name); err != nil && !errors.Is(err, replica.ErrUndrained) {
						t.Fatal(err)
					}
				}
			case 2:
				log("away")
				table.set(func() { table.away = true })
			case 3:
				log("back")
				table.set(func() { table.away = false; clear(table.cut) })
			case 4:
				log("cut %s", name)
				table.set(func() { table.cut[name] = true })
			case 5:
				log("hung %s", name)
				c.bus.hang(c.members[name].Status().Address, true)
			case 6:
				log("answers %s", name)
				c.bus.hang(c.members[name].Status().Address, false)
			case 7:
				backup = table.Backup()
			case 8:
				log("restore")
				table.Restore(backup)
			case 9:
				log("truncate")
				table.Restore(memory.New().Backup())
			}
			require.Empty(t, c.journal.twice)
			require.Empty(t, c.journal.fallen)
		}
		log("faults end")
		table.set(func() { table.away, table.faults = false, false; clear(table.cut) })
		c.bus.mu.Lock()
		clear(c.bus.hung)
		c.bus.mu.Unlock()
		// A replica that was hung for minutes may be in one of its long pauses (A10).
		even := func(withRetired bool) func() bool {
			return func() bool {
				n, least, most := 0, tasks, 0
				counts := c.journal.counts()
				for name, m := range c.members {
					if !withRetired && strings.Contains(m.Status().Err, replica.ErrRetired.Error()) {
						continue
					}
					n += counts[name]
					least, most = min(least, counts[name]), max(most, counts[name])
				}
				return n == tasks && most-least <= 1
			}
		}
		c.eventually(12*testLease, "everything runs", even(false))
		c.eventually(10*time.Minute+12*testLease, "all replicas have their share", even(true))
		c.close()
		table.late.Wait()
		c.bus.late.Wait()
	})
}

// lateness returns how late the writes of a call are; 0: not late.
func (f *faultyTable) lateness() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.faults || f.rand.IntN(20) > 0 {
		return 0
	}
	return time.Duration(f.rand.Int64N(int64(2 * testLease)))
}

func (f *faultyTable) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (b *bus) cut(name string, away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.away[name] = away
}

func (b *bus) hang(address string, hung bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hung[address] = hung
}
