package backendtest_test

// Each clause, broken on purpose, is found.

import (
	"context"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// defect is a backend that breaks one clause, over a table that keeps it.
type defect struct {
	name string
	// found is the test of the kit that must fail.
	found     string
	piecewise bool
	// sync replaces that of the table, read changes the Query of each Read, and view every View.
	// nil: they do not.
	sync func(b *broken, ctx context.Context, u replica.Update) (replica.View, error)
	read func(q *replica.Query)
	view func(b *broken, q replica.Query, v *replica.View)
}

// broken is a table with a defect.
type broken struct {
	*memory.Table
	defect defect

	mu     sync.Mutex
	beats  map[uint64]uint64 // what the table has, by ID, and what was given
	given  map[uint64]uint64
	last   replica.View
	server string
	seen   map[uint64]bool
}

func (b *broken) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	sync := on(func(*broken, *replica.Update) {})
	if b.defect.sync != nil {
		sync = b.defect.sync
	}
	v, err := sync(b, ctx, u)
	if err == nil && b.defect.view != nil {
		b.defect.view(b, u.Query, &v)
	}
	return v, err
}

func (b *broken) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.defect.read != nil {
		b.defect.read(&q)
	}
	v, err := b.Table.Read(ctx, q)
	if err == nil && b.defect.view != nil {
		b.defect.view(b, q, &v)
	}
	return v, err
}

// on returns a sync that changes the Update.
func on(change func(b *broken, u *replica.Update)) func(*broken, context.Context, replica.Update) (replica.View, error) {
	return func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		change(b, &u)
		return b.Table.Sync(ctx, u)
	}
}

var defects = []defect{
	{name: "names lose bytes", found: "B1_RecordsAreShownAsPublished", sync: on(func(_ *broken, u *replica.Update) {
		u.Member.Name = strings.ToValidUTF8(u.Member.Name, "")
	})},
	{name: "attributes are lost", found: "B1_RecordsAreShownAsPublished", sync: on(func(_ *broken, u *replica.Update) {
		u.Member.Attributes = nil
	})},
	{name: "numbers are rounded", found: "B1_RecordsAreShownAsPublished", view: func(_ *broken, _ replica.Query, v *replica.View) {
		for i := range v.Tasks { // as in JSON
			v.Tasks[i].Input = int64(float64(v.Tasks[i].Input))
		}
	}},
	{name: "a change is shown too late", found: "B1_ChangesAreShown", view: func(_ *broken, _ replica.Query, v *replica.View) {
		if !v.Full {
			v.Orders = nil
		}
	}},
	{name: "removals are not shown", found: "B1_ChangesAreShown", view: func(_ *broken, _ replica.Query, v *replica.View) {
		if !v.Full {
			v.Gone = nil
		}
	}},
	{name: "Follow is ignored", found: "B1_RecordsAreShownAsPublished", view: func(_ *broken, _ replica.Query, v *replica.View) { v.Reports = nil }},
	{name: "old heartbeats publish", found: "B1_HeartbeatsRise", sync: on(func(b *broken, u *replica.Update) {
		b.given[u.Self] = u.Member.Heartbeat
		b.beats[u.Self]++
		u.Member.Heartbeat = 1<<40 + b.beats[u.Self]
		if u.Batch != nil && u.Batch.Evict != nil {
			evict := make(map[uint64]uint64)
			for id, beat := range u.Batch.Evict {
				evict[id] = beat
				if beat == b.given[id] {
					evict[id] = 1<<40 + b.beats[id]
				}
			}
			u.Batch.Evict = evict
		}
	}), view: func(b *broken, _ replica.Query, v *replica.View) {
		for id := range v.Beats {
			v.Beats[id] = b.given[id]
		}
		v.Stored = b.given[b.last.Leader]
	}},
	{name: "the own heartbeat is shown with Beats only", found: "B1_TheLeadersAndTheOwnHeartbeat", view: func(_ *broken, q replica.Query, v *replica.View) {
		if !q.Beats {
			delete(v.Beats, q.Self)
		}
	}},
	{name: "Stored is the last heartbeat", found: "B1_TheLeadersAndTheOwnHeartbeat", view: func(_ *broken, q replica.Query, v *replica.View) {
		v.Stored = v.Beats[q.Self]
	}},
	{name: "Evict compares nothing", found: "B2_EvictComparesTheHeartbeat", sync: on(func(b *broken, u *replica.Update) {
		b.given[u.Self] = u.Member.Heartbeat
		if u.Batch != nil {
			for id := range u.Batch.Evict {
				u.Batch.Evict[id] = b.given[id]
			}
		}
	})},
	{name: "Evict removes the orders", found: "B2_EvictComparesTheHeartbeat", view: func(_ *broken, _ replica.Query, v *replica.View) {
		v.Orders = slices.DeleteFunc(v.Orders, func(o replica.Order) bool { return slices.Contains(v.Gone, o.Member) })
	}},
	{name: "an evicted member is published anew", found: "B2_EvictComparesTheHeartbeat", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		v, err := b.Table.Sync(ctx, u)
		if err != nil && ctx.Err() == nil {
			return b.Table.Read(ctx, u.Query)
		}
		return v, err
	}},
	{name: "an unknown ID in Left is forgotten", found: "B2_RemovedIDsStayRemoved", sync: on(func(b *broken, u *replica.Update) {
		b.seen[u.Self] = true
		u.Left = slices.DeleteFunc(u.Left, func(id uint64) bool { return !b.seen[id] })
	})},
	{name: "unknown IDs are evicted", found: "B2_UnknownIDsArePublished", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		if !b.seen[u.Self] && u.Member.Heartbeat > 1 {
			return replica.View{}, replica.ErrEvicted
		}
		b.seen[u.Self] = true
		return b.Table.Sync(ctx, u)
	}},
	{name: "campaigns compare no epoch", found: "B3_EpochsAndSeen", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Epoch = b.last.Epoch
		v, err := b.Table.Sync(ctx, u)
		b.last = v
		return v, err
	}},
	{name: "epochs are rounded", found: "B3_EpochsAndSeen", view: func(_ *broken, _ replica.Query, v *replica.View) { v.Epoch &^= 0xff }},
	{name: "Seen has only epochs", found: "B3_EpochsAndSeen", view: func(_ *broken, _ replica.Query, v *replica.View) { v.Seen = v.Epoch }},
	{name: "the longest lease is the present one", found: "B3_EpochsAndSeen", view: func(_ *broken, _ replica.Query, v *replica.View) { v.Lease = 15 * time.Second }},
	{name: "reads before it writes", found: "B4_LeaderOrMemberSeesTheOther", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		before, err := b.Table.Read(ctx, u.Query)
		b.mu.Unlock() // between the reading and the writing
		<-time.After(time.Millisecond)
		b.mu.Lock()
		v, err2 := b.Table.Sync(ctx, u)
		if err != nil || err2 != nil || u.Campaign == 0 && u.Member.Heartbeat > 1 {
			return v, err2
		}
		if u.Campaign == 0 {
			v.Epoch = before.Epoch
		} else {
			v.Members = before.Members
		}
		return v, nil
	}},
	{name: "ignores its context", found: "B5_CallsEndWithTheirContext", sync: func(b *broken, _ context.Context, u replica.Update) (replica.View, error) {
		return b.Table.Sync(context.Background(), u)
	}},
	{name: "confirms by itself", found: "B7_NothingBeforeConfirm", sync: on(func(_ *broken, u *replica.Update) { u.Confirm = true })},
	{name: "every table is the same Server", found: "B7_AnotherTableIsAnotherServer", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		if u.Server == "primary" {
			u.Server = b.server
		}
		v, err := b.Table.Sync(ctx, u)
		if err == nil && v.Server != b.server { // it is replaced without a trace
			b.server, u.Server = v.Server, v.Server
			v, err = b.Table.Sync(ctx, u)
		}
		return v, err
	}, view: func(b *broken, _ replica.Query, v *replica.View) { b.server, v.Server = v.Server, "primary" }},
	{name: "a Sync of another Server publishes", found: "B7_AnotherServerOnlyReads", sync: func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		v, err := b.Table.Sync(ctx, u)
		if err == nil && v.Server != u.Server {
			u.Server = v.Server
			v, err = b.Table.Sync(ctx, u)
		}
		return v, err
	}},
	{name: "a batch of another epoch takes effect", found: "O4_O5_BatchesOfOthers", sync: on(func(b *broken, u *replica.Update) {
		if u.Batch != nil && u.Batch.Epoch < b.last.Epoch {
			for i := range u.Batch.Orders { // by the present leader
				u.Batch.Orders[i].Version = b.last.Epoch + 1000
			}
			u.Member, u.Report = b.last.Members[slices.IndexFunc(b.last.Members, func(m replica.Member) bool { return m.ID == b.last.Leader })], nil
			u.Self, u.Member.Heartbeat = b.last.Leader, u.Member.Heartbeat+1000
			u.Batch.Epoch, u.Batch.Version = b.last.Epoch, b.last.Epoch+1000
		}
	}), view: func(b *broken, _ replica.Query, v *replica.View) { b.last = *v }},
	{name: "an earlier batch is written after a later one", found: "O4_O5_BatchesOfOthers", sync: on(func(b *broken, u *replica.Update) {
		if u.Batch != nil && u.Batch.Epoch == b.last.Epoch {
			u.Batch.Version = u.Batch.Epoch + 1000 + b.given[0]
			b.given[0]++
		}
	}), view: func(b *broken, _ replica.Query, v *replica.View) { b.last = *v }},
	{name: "orders are not counted", found: "O7_OrdersAreCounted", view: func(_ *broken, _ replica.Query, v *replica.View) { v.OrderCount = len(v.Orders) }},
	{name: "deletions are ignored", found: "O7_OrdersAreCounted", sync: on(func(_ *broken, u *replica.Update) {
		if u.Batch != nil {
			u.Batch.Dropped = nil
		}
	})},
	{name: "a missing order is not noticed", found: "O4_O5_LostOrders", view: func(b *broken, _ replica.Query, v *replica.View) {
		if b.server == "" {
			b.server = v.Server
		}
		v.Server = b.server
	}},
	{name: "the claim guards nothing", found: "O5_TheClaim", piecewise: true, read: func(q *replica.Query) { q.Since = "none" }},
	{name: "a deposed leader's batch has the table's epoch", found: "O5_TheClaim", piecewise: true, sync: on(func(b *broken, u *replica.Update) {
		if u.Batch != nil && u.Batch.Epoch < b.last.Epoch {
			u.Batch.Epoch, u.Batch.Version = b.last.Epoch, b.last.Epoch+1000
		}
	}), view: func(b *broken, _ replica.Query, v *replica.View) { b.last = *v }},
	{name: "reports of another order record are shown", found: "O4_O5_LostOrders", piecewise: true, view: func(b *broken, _ replica.Query, v *replica.View) {
		for id, r := range v.Reports {
			if b.last.Reports == nil {
				b.last.Reports = make(map[uint64]replica.Report)
			}
			b.last.Reports[id] = r
		}
		if v.Reports != nil {
			v.Reports = maps.Clone(b.last.Reports)
		}
	}},
	{name: "asks are dropped", found: "Asks", sync: on(func(_ *broken, u *replica.Update) { u.Asks = nil })},
}

const chosen = "BACKENDTEST_DEFECT"

// TestKit_OnADefect is run by TestKit_FindsEachDefect in a process of its own.
func TestKit_OnADefect(t *testing.T) {
	i := slices.IndexFunc(defects, func(d defect) bool { return d.name == os.Getenv(chosen) })
	if i < 0 {
		t.Skip("run by TestKit_FindsEachDefect")
	}
	backendtest.Run(t, func(*testing.T) backendtest.Store {
		table := memory.New()
		if defects[i].piecewise {
			table = memory.NewPiecewise()
		}
		return store(table, &broken{
			Table: table, defect: defects[i], beats: make(map[uint64]uint64), given: make(map[uint64]uint64), seen: make(map[uint64]bool),
		})
	})
}

func TestKit_FindsEachDefect(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKit_OnADefect$", "-test.skip=/Lead$", "-test.v")
			cmd.Env = append(os.Environ(), chosen+"="+d.name)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestKit_OnADefect/"+d.found, "%s", out)
		})
	}
}
