package replica_test

// Random histories: replicas that come, leave, die and are cut off, on a table that loses,
// delays and repeats calls, is set back, emptied and edited. No task runs more often than
// it may, and once the faults have ended everything settles.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

var (
	histories   = flag.Int("histories", 8, "random histories to run")
	historySeed = flag.Uint64("history", 0, "run only the history of this seed")
)

func TestHistories(t *testing.T) {
	first := rand.Uint64()
	n := *histories
	if *historySeed != 0 {
		first, n = *historySeed, 1
	}
	for i := range uint64(n) {
		seed := first + i
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				table := memory.New()
				if seed%2 == 1 {
					table = memory.NewPiecewise()
				}
				h := &history{fleet: newFleet(t, table), r: rand.New(rand.NewPCG(seed, 1)), cut: make(map[string]bool)}
				h.log.level = slog.LevelDebug
				defer h.end()
				h.run()
			})
		})
		if !ok {
			t.Fatalf("again: go test ./replica -run TestHistories -history %d", seed)
		}
	}
}

// history is one random history.
type history struct {
	*fleet
	r     *rand.Rand
	next  int
	saved []memory.Saved
	asks  sync.WaitGroup
	// losses: the table may be set back or emptied. Then all leases are equal: nothing is
	// promised for a member that is cut off then and has the longest lease of all.
	losses bool

	mu     sync.Mutex // guards what follows and the use of dice
	dice   *rand.Rand
	cut    map[string]bool // names of replicas whose calls are lost
	ids    map[uint64]string
	bad    int  // in a hundred calls
	leaves bool // tasks ask to run elsewhere (worker.Reschedule)
}

func (h *history) run() {
	h.dice = rand.New(rand.NewPCG(h.r.Uint64(), 2))
	h.ids, h.losses = make(map[uint64]string), h.r.IntN(2) == 0
	h.table.SetFaults(h.fault)
	h.began, h.leaves = h.reschedule, h.r.IntN(3) == 0
	even := !h.leaves // otherwise tasks may have left too many replicas
	h.tasksChange()
	for range 2 + h.r.IntN(4) {
		h.arrive()
	}
	for range 40 {
		h.event()
		time.Sleep(time.Duration(h.r.Int64N(int64(lease / 2))))
		if h.r.IntN(6) == 0 {
			time.Sleep(time.Duration(h.r.Int64N(int64(2 * lease))))
		}
		synctest.Wait()
		h.neverTwice()
		if h.t.Failed() {
			return
		}
	}
	h.mu.Lock()
	h.bad, h.leaves = 0, false
	clear(h.cut)
	h.mu.Unlock()
	h.table.SetFaults(nil)
	if len(h.replicas) == 0 {
		h.arrive()
	}
	time.Sleep(3 * lease) // a leader may come that knows an older list
	h.within(11*lease, "the end", func() bool { return h.allRun() && (!even || h.even()) })
	for _, n := range h.replicas { // for the longest lease, a member may be shown that has orders and no record (B6)
		h.within(2*lease, n.name+" knows who runs what", func() bool { return h.knows(n) && h.shows(n) })
	}
	time.Sleep(2 * lease)
	h.asks.Wait()
	h.neverTwice()
	if !h.allRun() {
		h.t.Fatalf("not settled any more: %v", h.loads())
	}
}

// reschedule makes some tasks ask to leave their replica.
func (h *history) reschedule(ctx context.Context, _, _ string) {
	h.mu.Lock()
	leaves, pause := h.leaves && h.dice.IntN(4) == 0, time.Duration(h.dice.Int64N(int64(lease)))
	h.mu.Unlock()
	if !leaves {
		return
	}
	select {
	case <-time.After(pause):
		_ = worker.Reschedule(ctx, "by chance")
	case <-ctx.Done():
	}
}

// event makes one random event.
func (h *history) event() {
	names := slices.Sorted(maps.Keys(h.replicas))
	pick := func() string { return names[h.r.IntN(len(names))] }
	kind := h.r.IntN(20)
	switch {
	case len(names) == 0 || kind < 3 && len(names) < 7:
		h.arrive()
	case kind < 5:
		name := pick()
		h.note("kill %s", name)
		h.kill(name)
	case kind == 5:
		name := pick()
		n := h.replicas[name]
		delete(h.replicas, name)
		h.note("leave %s", name)
		n.stop()
		h.leavers = append(h.leavers, n)
	case kind < 9:
		h.tasksChange()
	case kind < 11:
		name := pick()
		h.mu.Lock()
		h.cut[name] = !h.cut[name]
		h.note("cut %s: %v", name, h.cut[name])
		h.mu.Unlock()
	case kind < 13:
		h.mu.Lock()
		h.bad = []int{0, 5, 20, 60}[h.r.IntN(4)]
		h.note("bad: %d", h.bad)
		h.mu.Unlock()
	case kind == 13:
		h.saved = append(h.saved, h.table.Save())
	case kind == 14 && h.losses && len(h.saved) > 0:
		h.note("restore")
		h.table.Restore(h.saved[h.r.IntN(len(h.saved))])
	case kind == 15 && h.losses && h.r.IntN(3) == 0:
		h.note("truncate")
		h.table.Truncate()
	case kind < 18:
		h.edit()
	case kind == 18: // they wait
		n := h.replicas[pick()]
		h.note("ask %s", n.name)
		h.asks.Go(func() { n.Owners("t00") })
		h.asks.Go(func() { n.Last() })
	}
}

func (h *history) note(format string, args ...any) {
	_, _ = fmt.Fprintf(h.log, "%s --- %s\n", time.Now().UTC().Format("04:05.000"), fmt.Sprintf(format, args...))
}

func (h *history) arrive() {
	h.next++
	name := fmt.Sprintf("r%d", h.next)
	var opts []replica.Option
	switch kind := h.r.IntN(8); {
	case h.losses:
	case kind == 0:
		opts = append(opts, replica.WithLease(lease/2, time.Second))
	case kind == 1:
		opts = append(opts, replica.WithLease(2*lease, 2*time.Second))
	}
	h.note("join %s", name)
	h.join(name, opts...)
}

func (h *history) tasksChange() {
	tasks := named(4 + h.r.IntN(8))
	h.fleet.mu.Lock()
	for i := range tasks {
		h.limits[tasks[i].Name] = 2 // of the largest that was ever wanted, under StartThenStop
	}
	h.fleet.mu.Unlock()
	for i := range tasks {
		if i%4 == 3 {
			tasks[i].Handoff = orchestrator.StartThenStop
		} else {
			h.fleet.mu.Lock()
			h.limits[tasks[i].Name] = 1
			h.fleet.mu.Unlock()
		}
		tasks[i].Input = h.r.Int64N(2)
	}
	h.note("tasks %d", len(tasks))
	h.want(tasks...)
}

// edit changes records by hand.
func (h *history) edit() {
	kind := h.r.IntN(7)
	h.note("edit %d", kind)
	h.table.Edit(func(r *memory.Records) {
		ids := slices.DeleteFunc(slices.Sorted(maps.Keys(r.Members)), func(id uint64) bool { return r.Members[id].Record.ID == 0 })
		if len(ids) == 0 {
			return
		}
		m := r.Members[ids[h.r.IntN(len(ids))]]
		switch kind {
		case 0:
			m.Record = replica.Member{}
		case 1:
			m.Report = nil
		case 2:
			for task := range m.Orders {
				delete(m.Orders, task)
				break
			}
		case 3:
			m.Report = &replica.Report{Applied: replica.MaxSeen + h.r.Uint64N(1000)}
		case 4:
			r.Epoch = replica.MaxEpoch + 7
		case 5:
			clear(r.Tasks)
		case 6:
			clear(m.Orders)
		}
	})
}

// fault chooses what happens to a call.
func (h *history) fault(u replica.Update) memory.Fault {
	h.mu.Lock()
	defer h.mu.Unlock()
	if u.Member.Name != "" {
		h.ids[u.Self] = u.Member.Name
	}
	if h.cut[h.ids[u.Self]] {
		return memory.Fault{Err: memory.ErrInjected}
	}
	d := func(most time.Duration) time.Duration { return time.Duration(1 + h.dice.Int64N(int64(most))) }
	f := memory.Fault{Before: d(5 * time.Millisecond), After: d(5 * time.Millisecond), Between: d(2 * time.Millisecond)}
	if h.dice.IntN(100) >= h.bad {
		return f
	}
	switch h.dice.IntN(8) {
	case 0:
		f.Err = memory.ErrInjected
	case 1:
		f.After = time.Hour
	case 2:
		f.Err, f.Again = memory.ErrInjected, d(2*lease)
	case 3:
		f.Again = d(2 * lease)
	case 4:
		f.Before = d(lease / 2)
	case 5:
		f.After = d(lease / 2)
	case 6:
		f.Err = orchestrator.ErrRejected
	case 7:
		f.Between = d(lease / 8)
	}
	return f
}
