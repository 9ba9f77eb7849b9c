package backendtest

// The clauses B1 to B5: records, removals and elections.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

func testRecords(k *kit) {
	a, b := k.leader(), k.joined()
	r := replica.Report{
		Applied: 1<<61 - 1, Also: []string{odd, "b"}, Starting: []string{odd}, Refused: map[string]string{odd: odd, "": ""}, More: 3,
		States: []replica.TaskState{{Task: odd, State: "backoff", Restarts: 4, Since: time.Unix(1_800_000_000, 5000).UTC(), Err: odd}},
	}
	b.report(r)
	task := replica.Task{
		Name: odd, Instances: -1, Handoff: orchestrator.StartThenStop, Requires: []string{odd}, MaxPerZone: 2, Weight: math.MaxInt64,
		Input: math.MinInt64 + 1, Generation: math.MaxUint64,
	}
	a.write(&replica.Batch{
		Tasks: []replica.Task{task, {Name: "gone"}}, Listed: true,
		Orders: []replica.Order{{Member: b.self.ID, Task: odd, Input: math.MinInt64 + 1, Generation: math.MaxUint64}, {Member: b.self.ID, Task: "s", Stop: true}},
	})
	a.write(&replica.Batch{Deleted: []string{"gone"}})
	for _, v := range []replica.View{a.read(nil), k.joined().last} {
		m, want := k.member(v, b.self.ID), b.self
		want.Settings = want.Settings.Normalized()
		m.Settings = m.Settings.Normalized()
		m.Heartbeat = want.Heartbeat // the one in Beats counts
		k.equal(want, m, "the member's record")
		k.equal(b.self.Heartbeat, v.Beats[b.self.ID], "the member's heartbeat in Beats")
		got := v.Reports[b.self.ID]
		for i := range got.States {
			got.States[i].Since = got.States[i].Since.UTC()
		}
		k.equal(r, got, "the member's report")
		order := replica.Order{Member: b.self.ID, Task: odd, Version: a.version - 1, Input: math.MinInt64 + 1, Generation: math.MaxUint64}
		if a.piecewise {
			order.Epoch = a.epoch
		}
		k.equal(order, k.order(v, b.self.ID, odd), "the order")
		k.true(k.order(v, b.self.ID, "s").Stop, "the order to stop is one to run")
		k.equal([]replica.Task{task}, v.Tasks, "the list in force")
		k.true(v.Listed && v.Full, "Listed %v, Full %v, want both", v.Listed, v.Full)
	}
	v := b.read(func(q *replica.Query) { q.Follow = false })
	k.equal(2, len(v.Orders), "the number of the caller's orders")
	k.equal(0, len(v.Reports)+len(v.Tasks), "reports and tasks without Follow")
	k.equal(b.self.Heartbeat, v.Stored, "Stored")
}

// testChanges reads what has changed since a View, with and without Follow. A piecewise backend may show
// what others have written some time later (B1).
func testChanges(k *kit) {
	a, b := k.leader(), k.joined()
	since := func(c *client, follow bool, shows func(v replica.View) bool) replica.View {
		was := c.last
		for began := time.Now(); ; <-time.After(time.Millisecond) {
			v := c.read(func(q *replica.Query) { q.Follow, q.Since = follow, was.Revision })
			if !c.piecewise || shows(v) || time.Since(began) > 5*time.Second {
				return v
			}
		}
	}
	for _, follow := range []bool{true, false} {
		c := k.joined()
		c.read(func(q *replica.Query) { q.Follow = follow })
		a.batch(replica.Order{Member: c.self.ID, Task: "t"}, replica.Order{Member: b.self.ID, Task: "u"})
		v := since(c, follow, func(v replica.View) bool {
			return orderOf(v, c.self.ID, "t") != nil && (!follow || orderOf(v, b.self.ID, "u") != nil)
		})
		k.true(orderOf(v, c.self.ID, "t") != nil, "follow %v: the View lacks an order that was written since", follow)
		k.equal(follow, orderOf(v, b.self.ID, "u") != nil, "follow %v: whether the View has the order of another member", follow)
		b.self.Name = fmt.Sprint("another ", follow)
		b.report(replica.Report{Applied: 9})
		v = since(c, follow, func(v replica.View) bool {
			m := memberOf(v, b.self.ID)
			return m != nil && m.Name == b.self.Name
		})
		k.equal(b.self.Name, k.member(v, b.self.ID).Name, "follow %v: the name in a record that was written since", follow)
		_, ok := v.Reports[b.self.ID]
		k.equal(follow, ok, "follow %v: whether the View has the report", follow)
		d := k.joined()
		d.sync(func(u *replica.Update) { u.Left = []uint64{d.self.ID} })
		gone := func(v replica.View) bool {
			return slices.Contains(v.Gone, d.self.ID) || v.Full && memberOf(v, d.self.ID) == nil
		}
		k.true(gone(since(c, follow, gone)), "follow %v: the View does not show that a member has gone", follow)
		v = c.read(func(q *replica.Query) { q.Follow, q.Since = follow, "" })
		k.true(v.Full && memberOf(v, a.self.ID) != nil, "follow %v: a View without Since is not full", follow)
	}
	a.read(nil)
	a.self.Name = "changed"
	v := a.writeSince(&replica.Batch{Orders: []replica.Order{{Member: a.self.ID, Task: "own"}}, Evict: map[uint64]uint64{k.client().self.ID: 0, b.self.ID: b.self.Heartbeat}}, a.last.Revision)
	k.equal("changed", k.member(v, a.self.ID).Name, "the name in a record that the Sync itself has written")
	k.true(orderOf(v, a.self.ID, "own") != nil, "the View of a Sync lacks an order that it has written")
	k.true(len(v.Gone) == 2 || v.Full, "the View of a Sync does not show that it has removed two members: %v", v.Gone)
}

func testHeartbeats(k *kit) {
	a, b := k.leader(), k.joined()
	b.report(replica.Report{Applied: 5})
	before := b.self.Heartbeat
	b.outdated("late", before)
	b.outdated("earlier", 1)
	v := a.read(nil)
	k.true(k.member(v, b.self.ID).Name != "late" && k.member(v, b.self.ID).Name != "earlier", "a Sync whose heartbeat has not risen has changed the record")
	k.equal(before, v.Beats[b.self.ID], "the heartbeat after Syncs with older ones")
	k.equal(uint64(5), v.Reports[b.self.ID].Applied, "the report after Syncs with older heartbeats")
}

// testOwnHeartbeat asks for no heartbeats, and publishes no report.
func testOwnHeartbeat(k *kit) {
	a, b := k.leader(), k.joined()
	b.report(replica.Report{Applied: 5})
	stored := b.self.Heartbeat
	v := b.sync(func(u *replica.Update) { u.Beats, u.Follow = false, false })
	k.equal(b.self.Heartbeat, v.Beats[b.self.ID], "the caller's heartbeat, without Query.Beats")
	k.equal(a.self.Heartbeat, v.Beats[a.self.ID], "the leader's heartbeat, without Query.Beats")
	k.equal(stored, v.Stored, "Stored after a Sync without a report")
	k.true(v.Seen >= a.epoch, "Seen is %d, below the epoch %d", v.Seen, a.epoch)
}

// outdated Syncs with an old heartbeat and other values.
func (c *client) outdated(name string, heartbeat uint64) {
	c.k.Helper()
	c.sync(func(u *replica.Update) {
		u.Member.Name, u.Member.Heartbeat, u.Report = name, heartbeat, &replica.Report{Applied: 77}
	})
}

func testEvict(k *kit) {
	a, b := k.leader(), k.joined()
	b.report(replica.Report{Applied: 5})
	a.batch(replica.Order{Member: b.self.ID, Task: "t"})
	v := a.write(&replica.Batch{Evict: map[uint64]uint64{b.self.ID: b.self.Heartbeat - 1, a.self.ID: 0}})
	k.true(memberOf(v, b.self.ID) != nil && memberOf(v, a.self.ID) != nil, "a member with another heartbeat was evicted")
	b.sync(nil)
	v = a.write(&replica.Batch{Evict: map[uint64]uint64{b.self.ID: b.self.Heartbeat}})
	_, ok := v.Reports[b.self.ID]
	k.true(memberOf(v, b.self.ID) == nil && !ok, "an evicted member or its report is still there")
	k.true(slices.Contains(v.Gone, b.self.ID), "Gone lacks the evicted ID %d: %v", b.self.ID, v.Gone)
	k.true(orderOf(v, b.self.ID, "t") != nil, "the orders of an evicted member are gone before they were dropped")
	_, err := b.try(k.Context(), nil)
	k.evicted(err, "the Sync of an evicted member")
	k.true(memberOf(a.read(nil), b.self.ID) == nil, "the Sync of an evicted member has published it")
}

func testRemoved(k *kit) {
	a, b, c := k.leader(), k.joined(), k.client()
	c.read(nil)
	b.sync(func(u *replica.Update) { u.Left = []uint64{b.self.ID, c.self.ID} })
	_, err := b.try(k.Context(), nil)
	k.evicted(err, "the Sync of a member that has left")
	_, err = c.try(k.Context(), nil)
	k.evicted(err, "the first Sync of an ID that was in Left")
	d := k.client() // B6: an ID without a record
	d.read(nil)
	a.batch(replica.Order{Member: d.self.ID, Task: "t"})
	for _, how := range []string{"", " again"} { // a leader may have missed the first one
		since := a.last.Revision
		a.write(&replica.Batch{Evict: map[uint64]uint64{d.self.ID: 0}})
		v := a.read(func(q *replica.Query) { q.Since = since })
		k.true(slices.Contains(v.Gone, d.self.ID), "Gone lacks an ID that was evicted without a record%s", how)
	}
	_, err = d.try(k.Context(), nil)
	k.evicted(err, "the first Sync of an ID that was evicted without a record")
}

func testUnknown(k *kit) {
	c := k.client()
	c.self.Heartbeat = 400
	c.read(nil)
	v := c.sync(nil)
	k.true(memberOf(v, c.self.ID) != nil, "the Sync of an unknown ID has not published it")
	k.equal(c.self.Heartbeat, v.Beats[c.self.ID], "its heartbeat")
}

func testCampaigns(k *kit) {
	a := k.leader()
	clients := make([]*client, 6)
	for i := range clients {
		clients[i] = k.joined()
	}
	won := make([]bool, len(clients))
	var all sync.WaitGroup
	for i, c := range clients {
		all.Go(func() {
			next := c.last.Epoch + 1<<33 + uint64(i)
			v, err := c.try(k.Context(), func(u *replica.Update) { u.Campaign = next })
			won[i] = err == nil && v.Leader == c.self.ID && v.Epoch == next
		})
	}
	all.Wait()
	k.equal([]bool{true}, slices.DeleteFunc(won, func(won bool) bool { return !won }), "the winners of campaigns that named one epoch")
	k.true(a.read(nil).Leader != a.self.ID, "the former leader still leads")
}

func testEpochs(k *kit) {
	a, b := k.leader(), k.joined()
	const high = 1<<60 + 12345
	b.self.Epoch = high
	b.report(replica.Report{Applied: high + 7})
	v := a.read(nil)
	k.true(v.Seen >= high+7, "Seen is %d, below the Applied of a report, %d", v.Seen, uint64(high+7))
	a.campaign()
	k.true(a.last.Leader == a.self.ID, "a second campaign failed")
	k.equal(a.epoch, k.joined().last.Epoch, "the epoch, to the last digit")
	v = a.batch(replica.Order{Member: a.self.ID, Task: "t"})
	k.true(v.Seen >= a.version, "Seen is %d, below the version of an order, %d", v.Seen, a.version)
	v = a.sync(func(u *replica.Update) { u.Epoch, u.Campaign = a.epoch-1, a.epoch+1<<40 })
	k.equal(a.epoch, v.Epoch, "the epoch after a campaign that named another one")
	b.self.Lease = 77 * time.Second
	b.sync(nil)
	b.self.Lease = time.Second
	k.equal(77*time.Second, b.sync(nil).Lease, "the longest lease that any member ever had")
}

func testWriteThenRead(k *kit) {
	a := k.leader()
	for range 20 {
		b := k.client()
		b.read(nil)
		a.read(nil)
		var elected, joined replica.View
		var err1, err2 error
		next := a.last.Epoch + 1<<32
		var both sync.WaitGroup
		both.Go(func() { elected, err1 = a.try(k.Context(), func(u *replica.Update) { u.Campaign = next }) })
		both.Go(func() { joined, err2 = b.try(k.Context(), nil) })
		both.Wait()
		k.true(err1 == nil && err2 == nil, "Syncs at the same time failed: %v, %v", err1, err2)
		k.true(memberOf(elected, b.self.ID) != nil || joined.Epoch == next,
			"neither did the campaign's Sync return the new member, nor the member's Sync the new epoch")
	}
}

func testContext(k *kit) {
	c := k.joined()
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	began := time.Now()
	_, err := c.try(ctx, nil)
	k.true(err != nil, "a Sync succeeded though its context had ended")
	_, err = c.b.Read(ctx, c.query())
	k.true(err != nil, "a Read succeeded though its context had ended")
	k.true(time.Since(began) < 5*time.Second, "calls took %v though their context had ended", time.Since(began))
	c.sync(nil)
}

// testWait waits for an order, and until the context ends.
func testWait(k *kit) {
	a, b := k.leader(), k.joined()
	w, ok := b.b.(replica.Waiter)
	if !ok {
		k.Skip("the backend is no Waiter")
	}
	wait := func(ctx context.Context, v replica.View) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return w.Wait(ctx, replica.Query{Self: b.self.ID, Server: v.Server, Since: v.Revision})
	}
	ctx, cancel := context.WithTimeout(k.Context(), 50*time.Millisecond)
	defer cancel()
	n := 0
	for ; ctx.Err() == nil; n++ {
		if err := wait(ctx, b.read(func(q *replica.Query) { q.Follow = false })); err != nil && ctx.Err() == nil {
			k.Skipf("Wait cannot tell: %v", err)
		}
	}
	k.true(n < 20, "Wait has returned %d times in 50 ms, though nothing has changed", n)
	v := b.read(func(q *replica.Query) { q.Follow = false })
	woken := make(chan error, 1)
	go func() { woken <- wait(k.Context(), v) }()
	a.batch(replica.Order{Member: b.self.ID, Task: "t"})
	began := time.Now()
	if err := <-woken; err != nil && k.Context().Err() == nil {
		k.Skipf("Wait cannot tell: %v", err)
	}
	k.true(time.Since(began) < 5*time.Second, "Wait returned %v after an order", time.Since(began))
	ended, end := context.WithCancel(k.Context())
	end()
	began = time.Now()
	_ = wait(ended, b.read(func(q *replica.Query) { q.Follow = false }))
	k.true(time.Since(began) < 5*time.Second, "Wait took %v though its context had ended", time.Since(began))
}
