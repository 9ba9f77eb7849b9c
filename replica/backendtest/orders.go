package backendtest

// The clauses B7, O4, O5, O7 and O9, and the requests of operators.

import (
	"github.com/f8949c05/orchestrator/replica"
)

func testConfirm(k *kit) {
	a := k.joined()
	if a.last.Confirmed {
		if k.store.Recreate == nil {
			k.Skip("the table is confirmed, and Store.Recreate is nil")
		}
		k.store.Recreate()
		a.sync(nil)
		a.sync(nil)
	}
	k.true(!a.last.Confirmed && !a.last.Listed, "a new table is Confirmed or Listed")
	b := k.joined()
	server := a.last.Server
	a.sync(func(u *replica.Update) { u.Campaign = 1 << 40 })
	k.true(a.last.Epoch != 1<<40, "a campaign took effect before Confirm")
	b.sync(func(u *replica.Update) { u.Server, u.Confirm = "another", true })
	k.true(!b.last.Confirmed, "the Confirm of another Server took effect")
	b.sync(func(u *replica.Update) { u.Confirm = true })
	k.true(b.last.Confirmed, "a Confirm took no effect")
	k.equal(server, a.sync(nil).Server, "the Server after Confirm")
	k.true(a.campaign(), "a campaign failed after Confirm")
}

func testRecreated(k *kit) {
	if k.store.Recreate == nil {
		k.Skip("Store.Recreate is nil")
	}
	a, b := k.leader(), k.joined()
	was := a.last.Server
	a.write(&replica.Batch{Tasks: []replica.Task{{Name: "t"}}, Listed: true})
	k.store.Recreate()
	v := a.sync(nil)
	k.true(v.Server != was && v.Server != "", "the Server of another table is %q, as before", v.Server)
	k.true(v.Leader == 0 && v.Epoch == 0, "another table has epoch %d and leader %d", v.Epoch, v.Leader)
	k.true(!v.Confirmed && !v.Listed, "another table is Confirmed or Listed")
	k.equal(v.Server, b.sync(nil).Server, "the Server that another member finds")
	k.equal(v.Server, b.sync(nil).Server, "the Server after another Sync")
	k.true(memberOf(a.sync(nil), a.self.ID) != nil, "a member of the former table was not published anew")
}

// testOtherServer Syncs with the Server of a table that there is no longer.
func testOtherServer(k *kit) {
	a, b := k.leader(), k.joined()
	before, was := a.last.Epoch, b.self.Heartbeat
	v := b.sync(func(u *replica.Update) {
		u.Server, u.Report, u.Left = "another", &replica.Report{Applied: 5}, []uint64{a.self.ID}
		u.Campaign, u.Member.Name = before+1<<33, "other"
	})
	k.true(v.Server != "another" && v.Server == a.last.Server, "the Server became %q, which a Sync named", v.Server)
	k.equal(was, v.Beats[b.self.ID], "the heartbeat after a Sync that named another Server")
	_, ok := v.Reports[b.self.ID]
	k.true(!ok && k.member(v, b.self.ID).Name != "other", "a Sync that named another Server has published something")
	k.true(memberOf(v, a.self.ID) != nil, "a Sync that named another Server has removed a member")
	k.equal(before, v.Epoch, "the epoch after a campaign that named another Server")
	b.last = a.last
	v = a.sync(func(u *replica.Update) {
		u.Server, u.Batch = "another", &replica.Batch{Epoch: a.epoch, Version: a.version + 1, Tasks: []replica.Task{{Name: "x"}}, Orders: []replica.Order{{Member: b.self.ID, Task: "x", Version: a.version + 1}}}
	})
	k.true(len(v.Tasks) == 0 && orderOf(v, b.self.ID, "x") == nil, "a batch that named another Server took effect")
}

func testBatches(k *kit) {
	a, b := k.leader(), k.leader()
	a.last.Server = b.last.Server
	b.batch(replica.Order{Member: a.self.ID, Task: "t"}, replica.Order{Member: b.self.ID, Task: "t2", Stop: true})
	a.write(&replica.Batch{
		Orders: []replica.Order{{Member: a.self.ID, Task: "t", Stop: true}, {Member: b.self.ID, Task: "u"}}, Tasks: []replica.Task{{Name: "x"}}, Listed: true,
	})
	v := b.read(nil)
	o := k.order(v, a.self.ID, "t")
	k.true(!o.Stop && o.Version == b.version, "the batch of a deposed leader has changed an order: %+v", o)
	k.true(orderOf(v, b.self.ID, "u") == nil && len(v.Tasks) == 0 && !v.Listed, "the batch of a deposed leader was written")
	c := k.joined()
	c.epoch, c.version = b.epoch, b.version // it does not lead
	c.batch(replica.Order{Member: c.self.ID, Task: "t"})
	k.true(orderOf(b.read(nil), c.self.ID, "t") == nil, "the batch of a member that does not lead was written")

	stop := func(epoch, version uint64) *replica.Batch {
		return &replica.Batch{Epoch: epoch, Version: version, Orders: []replica.Order{{Member: a.self.ID, Task: "t", Version: version, Stop: true}}}
	}
	old := stop(b.epoch, b.version)
	b.version++
	b.batch(replica.Order{Member: a.self.ID, Task: "t"})
	for what, late := range map[string]*replica.Batch{"after a later one": old, "in another epoch": stop(b.epoch-1, b.version+1)} {
		_, _ = b.try(k.Context(), func(u *replica.Update) { u.Batch = late }) // it may fail, too
		v = b.read(nil)
		k.true(!k.order(v, a.self.ID, "t").Stop, "a batch was written %s", what)
	}
	again := &replica.Batch{Epoch: b.epoch, Version: b.version, Orders: v.Orders}
	v = b.sync(func(u *replica.Update) { u.Batch = again })
	k.true(orderOf(v, a.self.ID, "t") != nil, "the same batch again has lost an order")
}

func testLostOrders(k *kit) {
	if k.store.Drop == nil {
		k.Skip("Store.Drop is nil")
	}
	a, b := k.leader(), k.joined()
	a.batch(replica.Order{Member: b.self.ID, Task: "t", Stop: !a.piecewise}) // one to stop is missed, too
	was := b.read(nil)
	b.report(replica.Report{Applied: a.version})
	c := k.joined()
	k.store.Drop(b.self.ID)
	if !a.piecewise {
		v := c.sync(func(u *replica.Update) { u.Campaign = c.last.Epoch + 1<<33 })
		k.true(v.Server != was.Server && !v.Confirmed, "the orders of a member are gone, and the Server after a campaign is the same (B7)")
		return
	}
	k.true(was.Reading != "", "Reading is empty")
	v := a.read(nil)
	_, ok := v.Reports[b.self.ID]
	k.true(!ok, "a report is shown though the order record from which it was made is gone (O9)")
	b.sync(nil)
	k.true(b.last.Reading != was.Reading, "another order record has the same Reading")
	b.report(replica.Report{Applied: a.version, Also: []string{"t"}})
	_, ok = a.read(nil).Reports[b.self.ID]
	k.true(ok, "a report that was made from the present order record is not shown")
}

// testClaim elects a leader after another one has read everything, and writes with the
// former (O6).
func testClaim(k *kit) {
	a, b := k.leader(), k.joined()
	if !a.piecewise {
		k.Skip("the backend is not piecewise")
	}
	a.batch(replica.Order{Member: b.self.ID, Task: "t"})
	k.equal(a.epoch, k.order(b.read(nil), b.self.ID, "t").Epoch, "the order's Epoch")
	c := k.leader()
	k.true(orderOf(c.last, b.self.ID, "t") != nil, "the claim has lost an order")
	late := a.batch(replica.Order{Member: b.self.ID, Task: "t", Stop: true})
	k.true(!k.order(late, b.self.ID, "t").Stop, "a deposed leader has replaced an order after the claim")
	d := k.joined() // its order record was created after the claim
	a.batch(replica.Order{Member: d.self.ID, Task: "t"})
	k.true(orderOf(c.read(nil), d.self.ID, "t") == nil, "a deposed leader has written an order for a new member")
	c.batch(replica.Order{Member: b.self.ID, Task: "u"})
	k.true(orderOf(b.read(nil), b.self.ID, "u") != nil, "the new leader cannot write")
}

func testCount(k *kit) {
	a, b := k.leader(), k.joined()
	count := func(want int, what string) {
		k.Helper()
		k.equal(want, b.read(func(q *replica.Query) { q.Follow = false }).OrderCount, "OrderCount after %s", what)
	}
	count(0, "nothing")
	a.batch(replica.Order{Member: b.self.ID, Task: "t"}, replica.Order{Member: b.self.ID, Task: "u"}, replica.Order{Member: b.self.ID, Task: "s", Stop: true})
	count(2, "two orders to run and one to stop")
	a.batch(replica.Order{Member: b.self.ID, Task: "t"}, replica.Order{Member: b.self.ID, Task: "u", Stop: true})
	count(1, "another order for the same task, and one to stop")
	a.write(&replica.Batch{Dropped: []replica.Order{{Member: b.self.ID, Task: "u"}, {Member: b.self.ID, Task: "s"}}})
	count(1, "orders to stop were dropped")
	v := a.read(nil)
	k.true(orderOf(v, b.self.ID, "t") != nil && orderOf(v, b.self.ID, "u") == nil && orderOf(v, b.self.ID, "s") == nil, "the orders are %+v", v.Orders)
}

func testAsks(k *kit) {
	a, b := k.leader(), k.joined()
	drain := replica.Ask{Verb: "drain", Target: odd, By: odd, Why: odd}
	hold := replica.Ask{Verb: "hold", By: "x", Why: "y"}
	v := b.sync(func(u *replica.Update) {
		u.Asks = []replica.Ask{drain, hold, {Verb: "restart", Target: "t"}, {Verb: "restart", Target: "u"}, {Verb: "no such verb"}}
	})
	k.true(len(v.Failed) == 5 && v.Failed[0] == "" && v.Failed[3] == "" && v.Failed[4] != "", "Failed is %q", v.Failed)
	v = a.write(&replica.Batch{Restarted: []string{"u"}})
	_, t := v.Restarts["t"]
	k.true(t && len(v.Restarts) == 1, "Restarts is %v after one of t and u was carried out", v.Restarts)
	k.equal(drain, v.Drains[odd], "the drain")
	k.true(v.Hold != nil && *v.Hold == hold, "Hold is %v", v.Hold)
	v = b.sync(func(u *replica.Update) { u.Asks = []replica.Ask{{Verb: "undrain", Target: odd}, {Verb: "release"}} })
	k.true(len(v.Drains) == 0 && v.Hold == nil, "after undrain and release: %v, %v", v.Drains, v.Hold)
}
