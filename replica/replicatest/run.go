package replicatest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

// Store is a new, empty table on a store.
type Store struct {
	// Open returns a client of the table, with a connection of its own. It is called
	// several times, also at the same time.
	Open func() replica.Backend
	// Recreate deletes the table, so that the next Sync makes another one. nil skips the
	// test of it.
	Recreate func()
}

// Run tests backends. newStore is called for each subtest, and may use t.Cleanup.
func Run(t *testing.T, newStore func(t *testing.T) Store) {
	for _, test := range []struct {
		name string
		run  func(k *kit)
	}{
		{"B1_MembersAreShown", testMembers},
		{"B1_HeartbeatsRise", testHeartbeats},
		{"B2_EvictComparesTheHeartbeat", testEvict},
		{"B2_LeftIsRemoved", testLeft},
		{"B2_RetiredSyncsAreRefused", testRetire},
		{"B2_UnknownIDsArePublished", testUnknown},
		{"B3_OneCampaignOfAnEpochSucceeds", testCampaigns},
		{"B3_TheCampaignsEpoch", testEpochs},
		{"B4_LeaderOrMemberSeesTheOther", testWriteThenRead},
		{"B5_SyncEndsWithItsContext", testContext},
		{"B7_NothingBeforeConfirm", testConfirm},
		{"B7_AnotherTableIsAnotherServer", testRecreated},
		{"InvalidUpdatesChangeNothing", testInvalid},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&kit{T: t, store: newStore(t)}) })
	}
}

// kit is one test.
type kit struct {
	*testing.T
	store Store
}

// client is a member and its connection.
type client struct {
	k    *kit
	b    replica.Backend
	self replica.Member
	last replica.View
}

// timeout bounds each Sync of the tests.
const timeout = 20 * time.Second

func (k *kit) client() *client {
	return &client{k: k, b: k.store.Open(), self: replica.Member{
		ID: rand.Uint64N(1<<63-1) + 1, Lease: 15 * time.Second, Name: "replica ü", Address: "192.0.2.1:7000",
		Attributes: map[string]string{"version": "1.2", "zone\x01": "\"ü\"\n\x7f\x00"},
		Settings:   orchestrator.WorkerSettings{Zone: "zone ü", Labels: []string{`disk="ssd"`, "gpu"}, Share: 2, MaxTasks: 9},
	}}
}

// try Syncs once. change may change the update.
func (c *client) try(ctx context.Context, change func(*replica.Update)) (replica.View, error) {
	c.self.Heartbeat++
	u := replica.Update{Self: c.self, Epoch: c.last.Epoch}
	if change != nil {
		change(&u)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	v, err := c.b.Sync(ctx, u)
	if err == nil {
		c.last = v
	}
	return v, err
}

// sync is try, and fails the test after an error.
func (c *client) sync(change func(*replica.Update)) replica.View {
	c.k.Helper()
	v, err := c.try(c.k.Context(), change)
	if err != nil {
		c.k.Fatalf("Sync: %v", err)
	}
	return v
}

// confirmed returns a client that has confirmed the table's Server.
func (k *kit) confirmed() *client {
	k.Helper()
	c := k.client()
	server := c.sync(nil).Server
	if server == "" {
		k.Fatal("View.Server is empty")
	}
	if v := c.sync(func(u *replica.Update) { u.Confirm = server }); !v.Confirmed {
		k.Fatalf("Confirm of %q has no effect", server)
	}
	return c
}

func find(v replica.View, id uint64) (replica.Member, bool) {
	i := slices.IndexFunc(v.Members, func(m replica.Member) bool { return m.ID == id })
	if i < 0 {
		return replica.Member{}, false
	}
	return v.Members[i], true
}

func has(v replica.View, id uint64) bool { _, ok := find(v, id); return ok }

func testMembers(k *kit) {
	a, b := k.client(), k.client()
	a.self.Role, a.self.Epoch = replica.WorkerOnly, 1<<60+3
	a.sync(nil)
	a.self.Draining, a.self.Passive, a.self.Name = true, true, "renamed"
	a.sync(nil)
	v := b.sync(nil)
	got, _ := find(v, a.self.ID)
	if !maps.Equal(got.Attributes, a.self.Attributes) {
		k.Errorf("attributes are %q, published were %q", got.Attributes, a.self.Attributes)
	}
	want := a.self
	got.Attributes, want.Attributes = nil, nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		k.Errorf("member is %+v, published was %+v", got, want)
	}
	if len(v.Members) != 2 {
		k.Errorf("View has members %v, want two", v.Members)
	}
	if v.Lease < a.self.Lease {
		k.Errorf("View.Lease is %v, below a member's %v", v.Lease, a.self.Lease)
	}
}

func testHeartbeats(k *kit) {
	a, b := k.client(), k.client()
	a.sync(nil)
	old := replica.Update{Self: a.self}
	a.sync(nil)
	a.sync(nil)
	old.Self.Name = "late"
	for _, heartbeat := range []uint64{old.Self.Heartbeat, a.self.Heartbeat} {
		old.Self.Heartbeat = heartbeat
		// It may fail.
		_, _ = a.b.Sync(k.Context(), old)
		if got, _ := find(b.sync(nil), a.self.ID); got.Heartbeat != a.self.Heartbeat || got.Name != a.self.Name {
			k.Errorf("after a late Sync of heartbeat %d the member is %+v, want heartbeat %d", heartbeat, got, a.self.Heartbeat)
		}
	}
}

func testEvict(k *kit) {
	leader, a := k.confirmed(), k.client()
	a.sync(nil)
	before := a.self.Heartbeat
	a.sync(nil)
	v := leader.sync(func(u *replica.Update) { u.Evict = map[uint64]uint64{a.self.ID: before} })
	if !has(v, a.self.ID) {
		k.Fatal("a member was evicted though its heartbeat has risen")
	}
	v = leader.sync(func(u *replica.Update) { u.Evict = map[uint64]uint64{a.self.ID: a.self.Heartbeat} })
	if has(v, a.self.ID) || has(leader.sync(nil), a.self.ID) {
		k.Fatalf("an evicted member is still a member: %+v", v)
	}
}

func testLeft(k *kit) {
	a, b := k.client(), k.client()
	a.sync(nil)
	former := k.client() // another ID of the same process, of which the table knows nothing
	v := a.sync(func(u *replica.Update) { u.Left = []uint64{u.Self.ID, former.self.ID} })
	if has(v, a.self.ID) {
		k.Error("a member that left is in the View of the same Sync")
	}
	if v = b.sync(nil); len(v.Members) != 1 {
		k.Errorf("View has members %+v, want one: the other has left", v.Members)
	}
}

func testRetire(k *kit) {
	leader, a := k.confirmed(), k.client()
	a.sync(nil)
	v := leader.sync(func(u *replica.Update) { u.Retire = []uint64{a.self.ID} })
	if !has(v, a.self.ID) {
		k.Fatal("a retired member is gone: its record must stay until it is dead")
	}
	if _, err := a.try(k.Context(), nil); !errors.Is(err, replica.ErrRetired) {
		k.Errorf("Sync of a retired member: %v, want ErrRetired", err)
	}
	if got, _ := find(leader.sync(nil), a.self.ID); got.Heartbeat != 1 {
		k.Errorf("a refused Sync has published: %+v", got)
	}
	if v = leader.sync(func(u *replica.Update) { u.Evict = map[uint64]uint64{a.self.ID: 1} }); has(v, a.self.ID) {
		k.Error("a retired member cannot be evicted")
	}
}

func testUnknown(k *kit) {
	a, b := k.client(), k.client()
	b.sync(nil)
	a.self.Heartbeat = 41
	a.sync(nil)
	if !has(b.sync(nil), a.self.ID) {
		k.Error("an unknown ID with a heartbeat above 1 was not published")
	}
}

func testCampaigns(k *kit) {
	first := k.confirmed()
	last := uint64(0)
	for range 5 {
		var (
			all sync.WaitGroup
			mu  sync.Mutex
			won []replica.View
		)
		for range 6 {
			c := k.client()
			c.sync(nil)
			all.Go(func() {
				v, err := c.try(context.Background(), func(u *replica.Update) { u.Campaign, u.Epoch = last+rand.Uint64N(1<<32)+1, last })
				mu.Lock()
				defer mu.Unlock()
				if err == nil && v.Leader == c.self.ID {
					won = append(won, v)
				}
			})
		}
		all.Wait()
		v := first.sync(nil)
		if len(won) != 1 || won[0].Epoch != v.Epoch || won[0].Leader != v.Leader || v.Epoch <= last {
			k.Fatalf("%d campaigns of epoch %d succeeded; then the epoch is %d", len(won), last, v.Epoch)
		}
		last = v.Epoch
	}
}

func testEpochs(k *kit) {
	c, other := k.confirmed(), k.client()
	for _, epoch := range []uint64{1, 1<<53 + 1, 1<<63 - 1} {
		v := c.sync(func(u *replica.Update) { u.Campaign = epoch })
		if v.Leader != c.self.ID || v.Epoch != epoch {
			k.Fatalf("after a campaign for epoch %d, member %d leads epoch %d", epoch, v.Leader, v.Epoch)
		}
		if v = other.sync(nil); v.Leader != c.self.ID || v.Epoch != epoch {
			k.Errorf("another member sees the leader %d of epoch %d, want %d and %d", v.Leader, v.Epoch, c.self.ID, epoch)
		}
	}
}

func testWriteThenRead(k *kit) {
	first := k.confirmed()
	took := time.Duration(0)
	for range 3 {
		began := time.Now()
		first.sync(nil)
		took = max(took, time.Since(began))
	}
	last := uint64(0)
	for i := range 60 {
		leader, joins := k.client(), k.client()
		leader.sync(nil)
		jitter := func() { <-time.After(rand.N(2*took + time.Microsecond)) }
		var elected, joined replica.View
		var errs [2]error
		var both sync.WaitGroup
		both.Go(func() {
			jitter()
			elected, errs[0] = leader.try(context.Background(), func(u *replica.Update) { u.Campaign, u.Epoch = last+1, last })
		})
		both.Go(func() {
			jitter()
			joined, errs[1] = joins.try(context.Background(), nil)
		})
		both.Wait()
		if err := errors.Join(errs[:]...); err != nil {
			k.Fatal(err)
		}
		if elected.Leader != leader.self.ID {
			k.Fatalf("round %d: the only campaign failed: %+v", i, elected)
		}
		if !has(elected, joins.self.ID) && joined.Epoch < elected.Epoch {
			k.Fatalf("round %d: the new leader does not see the new member, and the new member does not see the new epoch", i)
		}
		last = elected.Epoch
		for _, c := range []*client{leader, joins} {
			c.sync(func(u *replica.Update) { u.Left = []uint64{u.Self.ID} })
		}
	}
}

func testContext(k *kit) {
	c := k.client()
	c.sync(nil)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	began := time.Now()
	if _, err := c.try(ctx, nil); err == nil {
		k.Error("Sync succeeds though its context has ended")
	}
	if took := time.Since(began); took > 5*time.Second {
		k.Errorf("Sync took %v after its context had ended", took)
	}
	c.sync(nil)
}

func testConfirm(k *kit) {
	a, b := k.client(), k.client()
	b.sync(nil)
	v := a.sync(func(u *replica.Update) {
		u.Campaign, u.Evict = 1, map[uint64]uint64{b.self.ID: b.self.Heartbeat}
	})
	if v.Confirmed || v.Leader != 0 || v.Epoch != 0 || !has(v, b.self.ID) {
		k.Fatalf("a new table is confirmed, or has a leader or evictions: %+v", v)
	}
	if v = a.sync(func(u *replica.Update) { u.Confirm = v.Server + "?" }); v.Confirmed {
		k.Fatal("Confirm of another Server has an effect")
	}
	if v = a.sync(func(u *replica.Update) { u.Confirm = v.Server }); !v.Confirmed {
		k.Fatal("Confirm of the Server has no effect")
	}
	if v = b.sync(func(u *replica.Update) { u.Campaign = 1 }); !v.Confirmed || v.Leader != b.self.ID {
		k.Fatalf("another member does not see the confirmation: %+v", v)
	}
}

func testRecreated(k *kit) {
	if k.store.Recreate == nil {
		k.Skip("the store has no Recreate")
	}
	c := k.confirmed()
	before := c.sync(nil)
	k.store.Recreate()
	c.self.Attributes = nil
	v := c.sync(func(u *replica.Update) { u.Confirm = before.Server })
	if v.Server == before.Server || v.Confirmed {
		k.Errorf("another table has Server %q, confirmed %v; the former had %q", v.Server, v.Confirmed, before.Server)
	}
	if !has(v, c.self.ID) {
		k.Error("a member was not published in the other table")
	}
}

func testInvalid(k *kit) {
	c := k.client()
	before := c.sync(nil)
	for _, spoil := range []func(*replica.Update){
		func(u *replica.Update) { u.Self.ID = 0 },
		func(u *replica.Update) { u.Self.ID = 1 << 63 },
		func(u *replica.Update) { u.Self.Heartbeat = 0 },
		func(u *replica.Update) { u.Self.Lease = -1 },
		func(u *replica.Update) { u.Campaign, u.Epoch = 7, 7 },
		func(u *replica.Update) { u.Self.Lease = time.Hour },
		func(u *replica.Update) { u.Self.Attributes = map[string]string{"k": string(make([]byte, 1<<16))} },
		func(u *replica.Update) { u.Self.Name = "\xff" },
		func(u *replica.Update) { u.Self.Settings.Labels = []string{"!gpu"} },
	} {
		if v, err := c.try(k.Context(), spoil); err == nil {
			k.Errorf("an invalid update was accepted: %+v", v)
		}
	}
	if v := c.sync(nil); len(v.Members) != len(before.Members) {
		k.Errorf("invalid updates have changed the members to %+v", v.Members)
	}
}
