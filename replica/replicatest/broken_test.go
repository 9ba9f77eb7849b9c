package replicatest_test

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
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

// defect is a backend that breaks one clause, over a table that keeps it.
type defect struct {
	name string
	// found is the test of the kit that must fail.
	found string
	sync  func(b *broken, ctx context.Context, u replica.Update) (replica.View, error)
}

var defects = []defect{
	{"attributes lose bytes", "B1_MembersAreShown", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Self.Attributes = maps.Clone(u.Self.Attributes)
		for k, v := range u.Self.Attributes {
			u.Self.Attributes[k] = strings.TrimSpace(strings.ReplaceAll(v, "\n", ""))
		}
		return b.Table.Sync(ctx, u)
	}},
	{"the View is of before the update", "B2_EvictComparesTheHeartbeat", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		v, err := b.Table.Sync(ctx, u)
		if err == nil {
			b.last, v.Members = v.Members, slices.Concat(only(b.last, func(m replica.Member) bool { return m.ID != u.Self.ID }),
				only(v.Members, func(m replica.Member) bool { return m.ID == u.Self.ID }))
		}
		return v, err
	}},
	{"late Syncs publish", "B1_HeartbeatsRise", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		b.given[u.Self.ID] = u.Self.Heartbeat
		b.count++
		u.Self.Heartbeat = 1<<40 + b.count
		for id, heartbeat := range u.Evict {
			if heartbeat == b.given[id] {
				u.Evict[id] = b.real[id]
			}
		}
		b.real[u.Self.ID] = u.Self.Heartbeat
		v, err := b.Table.Sync(ctx, u)
		for i := range v.Members {
			v.Members[i].Heartbeat = b.given[v.Members[i].ID]
		}
		return v, err
	}},
	{"Evict compares nothing", "B2_EvictComparesTheHeartbeat", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		b.given[u.Self.ID] = u.Self.Heartbeat
		for id := range u.Evict {
			u.Evict[id] = b.given[id]
		}
		return b.Table.Sync(ctx, u)
	}},
	{"Evict removes nothing", "B2_EvictComparesTheHeartbeat", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Evict = nil
		return b.Table.Sync(ctx, u)
	}},
	{"who leaves stays", "B2_LeftIsRemoved", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Left = only(u.Left, func(id uint64) bool { return id != u.Self.ID })
		return b.Table.Sync(ctx, u)
	}},
	{"retired members Sync", "B2_RetiredSyncsAreRefused", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Retire = nil
		return b.Table.Sync(ctx, u)
	}},
	{"Retire removes", "B2_RetiredSyncsAreRefused", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		b.given[u.Self.ID] = u.Self.Heartbeat
		for _, id := range u.Retire {
			u.Evict = map[uint64]uint64{id: b.given[id]}
		}
		u.Retire = nil
		return b.Table.Sync(ctx, u)
	}},
	{"unknown IDs are evicted", "B2_UnknownIDsArePublished", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		if b.given[u.Self.ID] == 0 && u.Self.Heartbeat > 1 {
			return replica.View{}, replica.ErrRetired
		}
		b.given[u.Self.ID] = u.Self.Heartbeat
		return b.Table.Sync(ctx, u)
	}},
	{"campaigns compare no epoch", "B3_OneCampaignOfAnEpochSucceeds", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Epoch = b.epoch
		v, err := b.Table.Sync(ctx, u)
		b.epoch = v.Epoch
		return v, err
	}},
	{"epochs are rounded", "B3_TheCampaignsEpoch", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		v, err := b.Table.Sync(ctx, u)
		v.Epoch = uint64(float64(v.Epoch)) // as in JSON numbers
		return v, err
	}},
	{"reads before it writes", "B4_LeaderOrMemberSeesTheOther", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		epoch, members := b.epoch, b.last
		b.Unlock() // between the reading and the writing
		<-time.After(time.Millisecond)
		b.Lock()
		v, err := b.Table.Sync(ctx, u)
		b.epoch, b.last = v.Epoch, v.Members
		if err == nil && (u.Campaign > 0 && v.Leader == u.Self.ID || u.Self.Heartbeat == 1) {
			if u.Campaign == 0 {
				v.Epoch = epoch
			}
			v.Members = append(only(members, func(m replica.Member) bool { return m.ID != u.Self.ID }), u.Self)
		}
		return v, err
	}},
	{"ignores its context", "B5_SyncEndsWithItsContext", func(b *broken, _ context.Context, u replica.Update) (replica.View, error) {
		return b.Table.Sync(context.Background(), u)
	}},
	{"confirms by itself", "B7_NothingBeforeConfirm", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		u.Confirm = b.server
		v, err := b.Table.Sync(ctx, u)
		if err == nil && b.server == "" {
			b.server = v.Server
			u.Confirm = v.Server
			u.Self.Heartbeat++
			v, err = b.Table.Sync(ctx, u)
		}
		return v, err
	}},
	{"any Confirm counts", "B7_NothingBeforeConfirm", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		if u.Confirm != "" {
			u.Confirm = b.server
		}
		v, err := b.Table.Sync(ctx, u)
		b.server = v.Server
		return v, err
	}},
	{"every table is the same Server", "B7_AnotherTableIsAnotherServer", func(b *broken, ctx context.Context, u replica.Update) (replica.View, error) {
		if u.Confirm != "" {
			u.Confirm = b.server
		}
		v, err := b.Table.Sync(ctx, u)
		if err == nil {
			b.server, v.Server = v.Server, "primary"
		}
		return v, err
	}},
}

// broken is a table with a defect.
type broken struct {
	*memory.Table
	sync.Mutex
	defect defect

	given, real map[uint64]uint64
	last        []replica.Member
	epoch       uint64
	server      string
	count       uint64
}

func (b *broken) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	b.Lock()
	defer b.Unlock()
	return b.defect.sync(b, ctx, u)
}

func only[T any](list []T, keep func(T) bool) (kept []T) {
	for _, v := range list {
		if keep(v) {
			kept = append(kept, v)
		}
	}
	return kept
}

const chosen = "REPLICATEST_DEFECT"

// TestKit_OnADefect is run by TestKit_FindsEachDefect in a process of its own.
func TestKit_OnADefect(t *testing.T) {
	i := slices.IndexFunc(defects, func(d defect) bool { return d.name == os.Getenv(chosen) })
	if i < 0 {
		t.Skip("run by TestKit_FindsEachDefect")
	}
	replicatest.Run(t, func(*testing.T) replicatest.Store {
		b := &broken{Table: memory.New(), defect: defects[i], given: make(map[uint64]uint64), real: make(map[uint64]uint64)}
		return replicatest.Store{
			Open:     func() replica.Backend { return b },
			Recreate: func() { b.Restore(memory.New().Backup()) },
		}
	})
}

func TestKit_FindsEachDefect(t *testing.T) {
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestKit_OnADefect$", "-test.v")
			cmd.Env = append(os.Environ(), chosen+"="+d.name)
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestKit_OnADefect/"+d.found, "%s", out)
		})
	}
}
