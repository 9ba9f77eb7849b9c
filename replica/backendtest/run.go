package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
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
	// Recreate deletes the table, so that the next call makes another one. nil skips the
	// tests that need it.
	Recreate func()
	// Drop deletes the orders of a member by hand. nil skips the tests that need it.
	Drop func(member uint64)
}

// Run tests backends. newStore is called for each subtest, and may use t.Cleanup. A subtest
// takes a few seconds at most if a call takes some milliseconds.
func Run(t *testing.T, newStore func(t *testing.T) Store) {
	for _, test := range []struct {
		name string
		run  func(k *kit)
	}{
		{"B1_RecordsAreShownAsPublished", testRecords},
		{"B1_ChangesAreShown", testChanges},
		{"B1_HeartbeatsRise", testHeartbeats},
		{"B1_TheLeadersAndTheOwnHeartbeat", testOwnHeartbeat},
		{"B2_EvictComparesTheHeartbeat", testEvict},
		{"B2_RemovedIDsStayRemoved", testRemoved},
		{"B2_UnknownIDsArePublished", testUnknown},
		{"B3_OneCampaignOfAnEpochSucceeds", testCampaigns},
		{"B3_EpochsAndSeen", testEpochs},
		{"B4_LeaderOrMemberSeesTheOther", testWriteThenRead},
		{"B5_CallsEndWithTheirContext", testContext},
		{"B7_NothingBeforeConfirm", testConfirm},
		{"B7_AnotherTableIsAnotherServer", testRecreated},
		{"B7_AnotherServerOnlyReads", testOtherServer},
		{"O4_O5_BatchesOfOthers", testBatches},
		{"O4_O5_LostOrders", testLostOrders},
		{"O5_TheClaim", testClaim},
		{"O7_OrdersAreCounted", testCount},
		{"Asks", testAsks},
		{"Wait", testWait},
		{"Lead", testLead},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(&kit{T: t, store: newStore(t)}) })
	}
}

// kit is one test.
type kit struct {
	*testing.T
	store Store
}

// timeout bounds each call of the tests.
const timeout = 20 * time.Second

// odd has bytes that stores like to lose.
const odd = "ü\"'\\\n\t\x00\x7f\xff\xfe%s"

// client is a member and its connection.
type client struct {
	k         *kit
	b         replica.Backend
	piecewise bool
	self      replica.Member
	last      replica.View
	epoch     uint64 // that it leads
	version   uint64 // of its last batch
}

// client returns a member that has not called yet.
func (k *kit) client() *client {
	c := &client{k: k, b: k.store.Open(), self: replica.Member{
		ID: rand.Uint64N(1<<63-1) + 1, Epoch: 7, Joined: 3, Lease: 15 * time.Second, Name: "replica " + odd, Version: odd, Service: odd,
		Attributes: map[string]string{"version": "1.2", odd: odd}, Role: replica.CandidateOnly, Draining: true, Answered: true,
		Settings: orchestrator.WorkerSettings{Zone: "zone ü", Labels: []string{`disk="ssd"`, "gpu"}, Share: 2, MaxTasks: 9},
	}}
	if d, ok := c.b.(replica.Describer); ok {
		c.piecewise = d.Traits().Piecewise
	}
	return c
}

// joined returns a member that has published itself.
func (k *kit) joined() *client {
	k.Helper()
	c := k.client()
	c.read(nil)
	c.sync(nil)
	return c
}

// leader returns a member that leads.
func (k *kit) leader() *client {
	k.Helper()
	c := k.joined()
	c.lead()
	return c
}

// query asks for everything.
func (c *client) query() replica.Query {
	return replica.Query{Self: c.self.ID, Server: c.last.Server, Beats: true, Follow: true}
}

// try Syncs once. change may change the update.
func (c *client) try(ctx context.Context, change func(*replica.Update)) (replica.View, error) {
	c.self.Heartbeat++
	u := replica.Update{Query: c.query(), Member: c.self, Epoch: c.last.Epoch}
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

// sync Syncs once, and fails the test if it fails.
func (c *client) sync(change func(*replica.Update)) replica.View {
	c.k.Helper()
	v, err := c.try(c.k.Context(), change)
	if err != nil {
		c.k.Fatalf("Sync: %v", err)
	}
	return v
}

// read reads once, and fails the test if it fails.
func (c *client) read(change func(*replica.Query)) replica.View {
	c.k.Helper()
	q := c.query()
	if change != nil {
		change(&q)
	}
	ctx, cancel := context.WithTimeout(c.k.Context(), timeout)
	defer cancel()
	v, err := c.b.Read(ctx, q)
	if err != nil {
		c.k.Fatalf("Read: %v", err)
	}
	c.last = v
	return v
}

// campaign asks for the next epoch, and reports whether the member was elected.
func (c *client) campaign() bool {
	c.k.Helper()
	next := max(c.last.Epoch, c.last.Seen) + 1<<32 + 1 + rand.Uint64N(1<<30)
	v := c.sync(func(u *replica.Update) { u.Confirm, u.Campaign = !c.last.Confirmed, next })
	if v.Leader == c.self.ID && v.Epoch == next {
		c.epoch, c.version = next, next
		return true
	}
	return false
}

// lead is elected, and reads everything as a leader does.
func (c *client) lead() {
	c.k.Helper()
	c.sync(func(u *replica.Update) { u.Confirm = !c.last.Confirmed })
	if !c.campaign() {
		c.k.Fatalf("the campaign of a confirmed table's only candidate failed: %+v", c.last)
	}
	c.read(nil)
}

// batch writes orders. Their versions and epochs are those of the batch.
func (c *client) batch(orders ...replica.Order) replica.View {
	c.k.Helper()
	return c.write(&replica.Batch{Orders: orders})
}

// write writes a batch.
func (c *client) write(b *replica.Batch) replica.View {
	c.k.Helper()
	return c.writeSince(b, "")
}

// writeSince writes a batch, and asks for what has changed since a View.
func (c *client) writeSince(b *replica.Batch, since string) replica.View {
	c.k.Helper()
	c.version++
	b.Epoch, b.Version = c.epoch, c.version
	for i := range b.Orders {
		if b.Orders[i].Version = b.Version; c.piecewise {
			b.Orders[i].Epoch = b.Epoch
		}
	}
	return c.sync(func(u *replica.Update) { u.Batch, u.Since = b, since })
}

// report publishes a report.
func (c *client) report(r replica.Report) {
	c.k.Helper()
	c.sync(func(u *replica.Update) { u.Report, u.Reading = &r, c.last.Reading })
}

// memberOf returns the record of a member, or nil.
func memberOf(v replica.View, id uint64) *replica.Member {
	for i := range v.Members {
		if v.Members[i].ID == id {
			return &v.Members[i]
		}
	}
	return nil
}

// member returns the record of a member, and fails the test if the View lacks it.
func (k *kit) member(v replica.View, id uint64) replica.Member {
	k.Helper()
	m := memberOf(v, id)
	k.true(m != nil, "the View lacks member %d: %+v", id, v.Members)
	return *m
}

// order returns the order for a task of a member, and fails the test if the View lacks it.
func (k *kit) order(v replica.View, member uint64, task string) replica.Order {
	k.Helper()
	o := orderOf(v, member, task)
	k.true(o != nil, "the View lacks the order for task %q of member %d: %+v", task, member, v.Orders)
	return *o
}

// orderOf returns the order for a task of a member, or nil.
func orderOf(v replica.View, member uint64, task string) *replica.Order {
	for i := range v.Orders {
		if v.Orders[i].Member == member && v.Orders[i].Task == task {
			return &v.Orders[i]
		}
	}
	return nil
}

// equal fails the test unless got is want.
func (k *kit) equal(want, got any, format string, args ...any) {
	k.Helper()
	if !reflect.DeepEqual(want, got) {
		k.Fatalf("%s: got %+v, want %+v", fmt.Sprintf(format, args...), got, want)
	}
}

// true fails the test unless ok.
func (k *kit) true(ok bool, format string, args ...any) {
	k.Helper()
	if !ok {
		k.Fatalf(format, args...)
	}
}

// evicted fails the test unless err is that of a removed ID.
func (k *kit) evicted(err error, what string) {
	k.Helper()
	k.true(errors.Is(err, replica.ErrEvicted), "%s: got error %v, want one that wraps ErrEvicted", what, err)
}
