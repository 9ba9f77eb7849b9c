package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/replica"
)

const (
	defaultLease = 30 * time.Second
	tries        = 10 // of a change that other writers come between
)

// Table is a [replica.Backend], a [replica.Waiter] and a [replica.Describer] in Leases of a namespace.
// It is for one replica, whose calls follow each other; Wait runs beside them.
type Table struct {
	name   string
	names  names
	client *client
	cache  *cache
	log    *slog.Logger
	err    error // of New

	busy chan struct{} // holds a value while a call is under way, which may use the fields below

	self      uint64 // the ID of the last call
	published bool   // its record was acknowledged
	acked     uint64 // the heartbeat that was
	report    string // the annotation with its report, as it was written last

	own        *object // the caller's orders, as they were read last; nil: none
	ownChanged uint64  // the revision of the cache then

	current *object // the table's Lease, as it was read or written last
	server  string  // its View.Server; "": it was not read yet
	read    bool    // this call has read or written it after the orders
	back    bool    // a Lease was older than one that was seen: the store is set back

	leads   uint64    // the epoch for which everything is claimed (O6)
	listed  uint64    // the epoch in which all members were listed last
	beats   time.Time // when all heartbeats were asked for last
	streams map[scope]*stream
	marked  map[uint64]time.Time // since when a member without orders is seen to be gone
}

// Traits is that of replica.Describer.
func (t *Table) Traits() replica.Traits {
	return replica.Traits{Piecewise: true, ReportsWake: true, Lease: defaultLease, Stop: 5 * time.Second, Least: 10 * time.Second}
}

// Sync is that of replica.Backend.
func (t *Table) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	return t.call(ctx, &u, true)
}

// Read is that of replica.Backend. The first Read of a leader with Follow claims all records of
// leaders (O6).
func (t *Table) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	return t.call(ctx, &replica.Update{Query: q}, false)
}

// call writes, if it does, and then reads.
func (t *Table) call(ctx context.Context, u *replica.Update, writes bool) (v replica.View, err error) {
	if t.err != nil {
		return v, t.err
	}
	select {
	case t.busy <- struct{}{}:
	case <-ctx.Done():
		return v, context.Cause(ctx)
	}
	defer func() { <-t.busy }()
	if t.read = false; u.Self != t.self {
		t.end()
		t.self, t.published, t.acked, t.report, t.own, t.leads = u.Self, false, 0, "", nil, 0
		t.cache.do(func() { t.cache.self, t.cache.full = u.Self, t.cache.revision+1 })
	}
	if u.Beats {
		t.beats = time.Now()
	}
	if u.Member.Lease > 0 {
		t.client.patience.Store(int64(u.Member.Lease / 3))
	}
	if t.server == "" || t.back || u.Server != t.server {
		err = t.readTable(ctx)
	}
	writes = writes && u.Server == t.server && (u.Member.Heartbeat > t.acked || !t.published)
	err = inTurn(err,
		func() error {
			if !writes {
				return nil
			}
			return t.write(ctx, u)
		},
		func() error { return t.refresh(ctx, u.Query, writes && !slices.Contains(u.Left, u.Self)) },
		func() error { return context.Cause(ctx) })
	if t.back = t.back || errors.Is(err, errBack); err != nil {
		return v, fmt.Errorf("table %s in namespace %s: %w", t.names.table, t.client.config.Namespace, err)
	}
	t.client.refused.Store(nil)
	v = t.view(u.Query)
	v.Failed = make([]string, len(u.Asks))
	for i, ask := range u.Asks {
		if !slices.Contains(verbs, ask.Verb) {
			v.Failed[i] = fmt.Sprintf("the verb %q is unknown", ask.Verb)
		}
	}
	return v, nil
}

// refresh reads what a query shows: reports, then orders, and then the table's record. publishes: the
// call has published the caller, and makes its orders if they are missing.
func (t *Table) refresh(ctx context.Context, q replica.Query, publishes bool) error {
	fresh, was := q.Since == "", t.own
	if err := t.ensure(ctx, t.showsBeats(), q.Follow, fresh); err != nil {
		return err
	}
	return inTurn(nil,
		func() error { return t.claim(ctx, q.Follow && fresh) },
		func() error { return t.readOrders(ctx, fresh, publishes) },
		func() error {
			o, reads := t.cache.object(t.names.table), publishes || fresh || t.leads == 0
			if t.read = t.read && t.own == was; t.read {
				return nil
			}
			if !reads && t.own == was && o != nil && o.version == t.current.version && t.isOpen(scopeOwn) { // a leader is woken by each report
				return nil
			}
			return t.readTable(ctx)
		},
		func() (err error) {
			if epoch := t.current.table.Epoch; publishes && t.listed != epoch {
				if t.listed = epoch; !t.isOpen(scopeMembers) {
					_, err = t.list(ctx, scopeMembers)
				}
			}
			return err
		})
}

// inTurn calls functions until one returns an error. If err is one, it calls no function.
func inTurn(err error, all ...func() error) error {
	for _, f := range all {
		if err == nil {
			err = f()
		}
	}
	return err
}

// isOpen reports whether a scope is watched.
func (t *Table) isOpen(sc scope) bool { return t.streams[sc] != nil && t.streams[sc].open.Load() }

// showsBeats reports whether all heartbeats were asked for lately. They are watched for until they are
// not.
func (t *Table) showsBeats() bool {
	return time.Since(t.beats) < max(t.current.table.Lease, time.Second)/2
}

// readOrders reads the caller's orders, if they have changed or nothing watches them.
func (t *Table) readOrders(ctx context.Context, fresh, publishes bool) (err error) {
	name := t.names.orders(t.self)
	o := t.cache.object(name)
	if fresh || !t.isOpen(scopeOwn) || o == nil && publishes || o != t.own {
		if o, err = t.get(ctx, name); err != nil {
			return err
		}
	}
	if o == nil && publishes { // they were deleted by hand
		err = t.putOrders(ctx, t.self, nil, nil)
		o = t.cache.object(name)
	}
	if err == nil && o != t.own {
		t.own = o
		t.cache.do(func() { t.ownChanged = t.cache.revision })
	}
	return err
}

// errBack is a sign that the store was set back (B7).
var errBack = errors.New("a Lease is older than one that was seen")

// get reads a Lease; nil: it does not exist.
func (t *Table) get(ctx context.Context, name string) (*object, error) {
	was := t.cache.object(name)
	l, err := t.client.get(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case l == nil:
		t.cache.do(func() { t.cache.forget(name) })
		return nil, nil
	case was != nil && versionOf(l.Metadata) < was.version:
		return newObject(t.names, l), errBack
	}
	return t.cache.learn(l), nil
}

// sinceOf returns the revision of the cache that a query names; 0: a full View is due.
func sinceOf(q replica.Query, server string) (revision uint64) {
	var of string
	var follow bool
	if _, err := fmt.Sscan(q.Since, &of, &follow, &revision); err != nil || of != server || follow != q.Follow {
		return 0
	}
	return revision
}

// view returns what a query shows of what was read.
func (t *Table) view(q replica.Query) (v replica.View) {
	c, r := t.cache, t.current.table
	c.mu.Lock()
	defer c.mu.Unlock()
	since := sinceOf(q, t.server)
	if since < c.full {
		since = 0
	}
	v = replica.View{
		Server: t.server, Confirmed: r.Confirmed, Listed: r.Listed, Epoch: r.Epoch, Leader: r.Leader, Lease: r.Lease, Seen: r.Epoch,
		Full: since == 0, Revision: fmt.Sprintln(t.server, q.Follow, c.revision), Beats: make(map[uint64]uint64), Reports: make(map[uint64]replica.Report),
		Drains: r.Drains, Hold: r.Hold, Restarts: r.Restarts,
	}
	beats := q.Follow || t.showsBeats()
	for _, name := range slices.Sorted(maps.Keys(c.objects)) {
		o := c.objects[name]
		v.Seen = max(v.Seen, o.seen)
		switch {
		case o.kind == kindMember:
			t.showMember(&v, o, since, beats || o.id == q.Self || o.id == r.Leader, q.Follow)
		case o.kind == kindOrders && q.Follow && o.id != q.Self && o.changed > since:
			all, _ := o.orders.of(o.id)
			v.Orders = append(v.Orders, all...)
		case o.kind == kindTasks && q.Follow && v.Full:
			v.Tasks = append(v.Tasks, o.tasks.Tasks...)
		}
	}
	if t.own != nil { // one that was changed by hand has no orders
		all, toRun := t.own.orders.of(q.Self)
		if v.Reading, v.OrderCount = t.own.orders.Reading, toRun; v.Full || t.ownChanged > since {
			v.Orders = append(v.Orders, all...)
		}
	}
	if r.Leader != 0 {
		v.Beats[r.Leader] = max(v.Beats[r.Leader], r.Beat)
	}
	if t.published {
		v.Beats[q.Self] = max(v.Beats[q.Self], t.acked)
	}
	return v
}

// showMember adds a member to a View, and its report. A report that was made from other orders than
// those that are there is not shown (O9). It is called with the cache's lock.
func (t *Table) showMember(v *replica.View, o *object, since uint64, beat, follow bool) {
	orders := cmp.Or(t.cache.objects[t.names.orders(o.id)], &object{})
	if o.gone != "" {
		if o.changed > since {
			v.Gone = append(v.Gone, o.id)
		}
		return
	}
	if o.changed > since {
		v.Members = append(v.Members, o.member)
	}
	if beat {
		v.Beats[o.id] = o.member.Heartbeat
	}
	if o.report.Server != t.server {
		return
	}
	if o.id == t.self {
		v.Stored = o.report.Heartbeat
	}
	if follow && orders.genuine && orders.orders.Reading == o.report.Reading && max(o.changed, orders.changed) > since {
		v.Reports[o.id] = o.report.Report
	}
}

// Wait is that of replica.Waiter. It returns nil when the table's record or the caller's orders have
// changed; where the last call has asked for heartbeats, when a member has; and where it has asked for
// everything, when a report, orders or tasks have.
func (t *Table) Wait(ctx context.Context, q replica.Query) error {
	if t.err != nil {
		return t.err
	}
	for since := sinceOf(q, q.Server); ; {
		var woken uint64
		var changed chan struct{}
		t.cache.do(func() { woken, changed = t.cache.woken, t.cache.changed })
		if woken > since {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Close ends the watches and closes the connections. No call follows.
func (t *Table) Close() error {
	t.busy <- struct{}{}
	defer func() { <-t.busy }()
	t.end()
	t.client.http.CloseIdleConnections()
	return nil
}

// readTable reads the table's record. If it is missing, or shows that acknowledged data is lost, it
// makes another Server (B7).
func (t *Table) readTable(ctx context.Context) error {
	for range tries {
		o, err := t.get(ctx, t.names.table)
		if t.back = t.back || errors.Is(err, errBack); err != nil && !t.back {
			return err
		}
		if o != nil && t.back {
			t.end()
			t.cache.do(func() { clear(t.cache.objects); t.cache.full = t.cache.revision + 1 })
			o = t.cache.learn(o.lease)
			t.own, t.leads, t.published = nil, 0, false
		}
		why, err := t.check(o)
		if err != nil {
			return err
		}
		if why == "" {
			if server := serverOf(o); server != t.server {
				t.server, t.leads = server, 0
			}
			t.current, t.read, t.back = o, true, false
			return nil
		}
		if err := t.lose(ctx, o, why); err != nil && !isConflict(err) {
			return err
		}
	}
	return errors.New("the table's Lease changes all the time")
}

// serverOf returns the View.Server of the table's Lease.
func serverOf(o *object) string { return o.lease.Metadata.UID + "." + o.table.Server }

// check returns a sign that acknowledged data is lost, or "". The error wraps ErrForeign if the table's
// Lease is that of another program.
func (t *Table) check(o *object) (why string, err error) {
	switch {
	case o == nil:
		return "the Lease is missing", nil
	case o.genuine && o.table.Format != format:
		return "", fmt.Errorf("%w: another version of this library has written them, in the format %q", replica.ErrForeign, o.table.Format)
	case o.genuine && o.table.Table != t.name:
		return "", fmt.Errorf("%w: they are those of the table %q", replica.ErrForeign, o.table.Table)
	case !o.genuine && t.server == "" && o.lease.Metadata.Labels[labelTable] == "" && o.text(keyRecord) == "":
		return "", fmt.Errorf("%w: another program, %q, holds this Lease: give this service a table of another name", replica.ErrForeign,
			o.lease.Spec.HolderIdentity)
	case !o.genuine, o.table.Lease < 0, o.table.Lease > replica.MaxLease, o.table.Epoch >= replica.MaxEpoch:
		return "the Lease was changed by hand", nil
	case t.back && (o.table.Confirmed || serverOf(o) == t.server): // otherwise another replica has found it
		return "the store was set back", nil
	case serverOf(o) == t.server && o.table.Epoch < t.current.table.Epoch:
		return "the epoch has fallen", nil
	}
	return "", nil
}

// lose makes the table another Server. All other records stay, but those of leaders are of no epoch
// that is in force.
func (t *Table) lose(ctx context.Context, o *object, why string) error {
	next := tableRecord{}
	if o != nil {
		next = o.table // zero, if it was changed by hand
	}
	next.Format, next.Table, next.Server, next.Confirmed, next.Listed = format, t.name, rand.Text(), false, false
	next.Epoch, next.Leader, next.Name, next.Beat = 0, 0, "", 0
	for _, m := range t.cache.all(kindMember) { // Confirm waits for it
		next.Lease = max(next.Lease, m.member.Lease)
	}
	next.Lease = min(max(next.Lease, 0), replica.MaxLease)
	l, err := t.newTable(o, next)
	if err == nil {
		_, err = t.put(ctx, l)
	}
	if t.back = t.back && err != nil; err == nil && t.server != "" {
		t.log.Warn("records were lost or changed by hand, tasks run on and nothing moves for one lease", "table", t.names.table, "reason", why)
	}
	return err
}

// changeTable changes the table's record. The error is errDeposed if it is of another Server.
func (t *Table) changeTable(ctx context.Context, change func(r *tableRecord)) error {
	o, err := t.replace(ctx, t.names.table, func(was *object) (*lease, error) {
		if was == nil || !was.genuine || serverOf(was) != t.server {
			return nil, errDeposed
		}
		t.current = was
		next := was.table
		if change(&next); reflect.DeepEqual(next, was.table) {
			return nil, nil
		}
		return t.newTable(was, next)
	})
	if o != nil {
		t.current, t.read = o, true
	}
	return err
}

// newTable returns the table's Lease with a record.
func (t *Table) newTable(was *object, r tableRecord) (*lease, error) {
	return t.newLease(was, t.names.table, kindTable, "all", r, r.Name, r.Lease)
}
