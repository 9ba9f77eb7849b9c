package kubernetes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// Why a member is removed.
const (
	goneLeft    = "left"    // everything of it has stopped
	goneEvicted = "evicted" // the mark is kept for a while, because a Sync may be under way
)

var (
	errDeposed  = errors.New("deposed: another leader was elected")
	errLater    = errors.New("a record has a later epoch than the leader's") // after a loss (O5)
	errTooLarge = errors.New("a record is too large")
)

// newLease returns a Lease with a record. It replaces one that was seen; nil: there was none. holder
// and lease are for people.
func (t *Table) newLease(was *object, name, kind, id string, record any, holder string, d time.Duration) (*lease, error) {
	text, err := encode(record)
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("%w: Lease %s would have %d bytes, and Kubernetes takes %d: run fewer tasks on each replica, or give them shorter names",
			errTooLarge, name, len(text), maxRecord)
	}
	l := &lease{
		Metadata: metadata{Name: name, Labels: map[string]string{labelTable: t.names.table, labelKind: kind, labelID: id}, Annotations: map[string]string{keyRecord: text}},
		Spec:     spec{ascii.Escape(holder), int(max(d.Round(time.Second)/time.Second, 1)), time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")},
	}
	if was != nil {
		l.Metadata.UID, l.Metadata.ResourceVersion = was.lease.Metadata.UID, was.lease.Metadata.ResourceVersion
	}
	return l, err
}

// put writes a Lease, and learns it.
func (t *Table) put(ctx context.Context, l *lease) (*object, error) {
	stored, err := t.client.put(ctx, l)
	if err != nil {
		return nil, err
	}
	return t.cache.learn(stored), nil
}

// replace replaces a Lease by what change makes of it, until no other writer comes between, and returns
// what it has written. change is given nil if the Lease does not exist, and returns nil to leave it.
func (t *Table) replace(ctx context.Context, name string, change func(was *object) (*lease, error)) (*object, error) {
	was := t.cache.object(name)
	for range tries {
		l, err := change(was)
		if l == nil || err != nil {
			return nil, err
		}
		if o, err := t.put(ctx, l); !isConflict(err) {
			return o, err
		}
		if was, err = t.get(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the Lease %s changes all the time", name)
}

// write carries out an Update.
func (t *Table) write(ctx context.Context, u *replica.Update) error {
	var p *plan
	if b := u.Batch; b != nil && b.Epoch == t.leads && t.leads != 0 {
		var err error
		if p, err = t.plan(b); err != nil {
			return fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
		}
	}
	leaves := slices.Contains(u.Left, u.Self)
	if !leaves {
		if err := t.publish(ctx, u); err != nil {
			return err
		}
	}
	for _, id := range u.Left {
		if err := t.mark(ctx, id, goneLeft, nil); err != nil {
			return err
		}
	}
	if leaves {
		return t.tidyLast(ctx)
	}
	return t.leave(ctx, inTurn(nil,
		func() error { return t.changeTable(ctx, func(r *tableRecord) { publishTable(r, u, p) }) },
		func() error { return t.carryOut(ctx, p) },
		func() error { return t.tidy(ctx) }))
}

// isLeading reports whether the caller leads and has claimed everything, by the table's record.
func (t *Table) isLeading() bool {
	r := t.current.table
	return t.leads != 0 && r.Leader == t.self && r.Epoch == t.leads
}

// publishTable changes what an Update changes in the table's record before its batch.
func publishTable(r *tableRecord, u *replica.Update, p *plan) {
	r.Lease = max(r.Lease, min(u.Member.Lease, replica.MaxLease))
	if r.Confirmed = r.Confirmed || u.Confirm; r.Confirmed && u.Epoch == r.Epoch && u.Campaign > r.Epoch && u.Campaign < replica.MaxEpoch {
		r.Epoch, r.Leader = u.Campaign, u.Self
	}
	if r.Leader == u.Self {
		r.Beat, r.Name = u.Member.Heartbeat, u.Member.Name
		if p != nil {
			r.Parts = max(r.Parts, p.parts)
		}
	}
	if len(u.Asks) > 0 {
		r.ask(u.Asks, nil)
	}
}

// leave ends a leadership if an error says so: another leader was elected, or a loss has set the epoch
// back below that of a record. Then the table becomes one without a leader, and a campaign above that
// record follows.
func (t *Table) leave(ctx context.Context, err error) error {
	epoch := t.current.table.Epoch
	switch {
	case errors.Is(err, errDeposed): // the View shows it
		t.leads, t.read = 0, false
		return nil
	case errors.Is(err, errLater):
		t.leads = 0
		return t.changeTable(ctx, func(r *tableRecord) {
			if r.Leader == t.self && r.Epoch == epoch {
				r.Leader, r.Beat, r.Name = 0, 0, ""
			}
		})
	}
	return err
}

// publish writes the caller's record. The first time it writes nothing before everything that is needed
// can be read, and the orders before the record.
func (t *Table) publish(ctx context.Context, u *replica.Update) error {
	if !t.published {
		if err := inTurn(t.ensure(ctx, u.Beats, u.Follow, true), func() error { return t.putOrders(ctx, t.self, nil, nil) }); err != nil {
			return err
		}
	}
	name := t.names.member(t.self)
	if u.Report != nil {
		var err error
		if t.report, err = encode(reportRecord{u.Server, u.Reading, u.Member.Heartbeat, *u.Report}); err != nil {
			return err
		}
	}
	_, err := t.replace(ctx, name, func(was *object) (*lease, error) {
		if was != nil && was.gone != "" {
			return nil, replica.ErrEvicted
		}
		l, err := t.newLease(was, name, kindMember, fmt.Sprintf("%016x", t.self), u.Member, u.Member.Name, u.Member.Lease)
		l.Metadata.Annotations[keyReport] = t.report // also if the record was deleted by hand
		return l, err
	})
	if err == nil {
		t.published, t.acked = true, u.Member.Heartbeat
	}
	return err
}

// mark marks a member as removed, if its heartbeat is the one given; nil: any. An ID without a record
// gets one.
func (t *Table) mark(ctx context.Context, id uint64, why string, beat *uint64) error {
	name := t.names.member(id)
	_, err := t.replace(ctx, name, func(was *object) (*lease, error) {
		why, record := why, replica.Member{ID: id}
		switch {
		case was == nil && beat != nil && *beat != 0:
			return nil, nil
		case was == nil:
			why = goneEvicted // its first Sync may be under way
		case was.gone != "":
			t.cache.do(func() { // it is shown again
				t.cache.revision++
				was.changed = t.cache.revision
			})
			return nil, nil
		case beat != nil && was.member.Heartbeat != *beat:
			return nil, nil
		default:
			record = was.member
		}
		l, err := t.newLease(was, name, kindMember, fmt.Sprintf("%016x", id), record, why, record.Lease)
		l.Metadata.Annotations[keyGone] = why
		return l, err
	})
	return err
}

// putRecord writes a record of a leader, unless a later batch has written it. next returns the record
// and the number of its tasks; nil: it stays as it is.
func (t *Table) putRecord(ctx context.Context, name, kind, id string, w writer, next func(was *object) (any, int)) error {
	conflict := false
	_, err := t.replace(ctx, name, func(was *object) (*lease, error) {
		if conflict && w.Epoch > 0 { // otherwise the caller makes its own orders
			if err := t.checkLeads(ctx, w.Epoch); err != nil {
				return nil, err
			}
		}
		record, n := next(was)
		if conflict = true; record == nil || was != nil && was.writer.Epoch == w.Epoch && was.writer.Version > w.Version {
			return nil, nil
		}
		if was != nil && was.writer.Epoch > w.Epoch {
			return nil, fmt.Errorf("%w: Lease %s", errLater, name)
		}
		l, err := t.newLease(was, name, kind, id, record, fmt.Sprintf("%d tasks", n), 0)
		if was.text(keyRecord) == l.Metadata.Annotations[keyRecord] {
			return nil, nil
		}
		return l, err
	})
	return err
}

// checkLeads returns an error unless the caller leads an epoch of its Server, by the table's record.
func (t *Table) checkLeads(ctx context.Context, epoch uint64) error {
	o, err := t.get(ctx, t.names.table)
	if err == nil && (o == nil || !o.genuine || serverOf(o) != t.server || o.table.Epoch != epoch || o.table.Leader != t.self) {
		err = errDeposed
	}
	return err
}

// putOrders writes the orders of a member after a change by a leader; nil: it makes empty ones if they
// are missing.
func (t *Table) putOrders(ctx context.Context, id uint64, w *writer, c *change) error {
	return t.putRecord(ctx, t.names.orders(id), kindOrders, fmt.Sprintf("%016x", id), *cmp.Or(w, &writer{}), func(was *object) (any, int) {
		r := ordersRecord{Reading: rand.Text(), Orders: map[string]string{}}
		if was != nil && w == nil {
			return nil, 0
		}
		if was != nil && was.genuine {
			r = was.orders
		}
		if w != nil {
			r = r.with(*w, c.set, c.drop)
		}
		_, toRun := r.of(id)
		return r, toRun
	})
}

// putTasks writes a part of the list in force; nil: as it is, for another epoch.
func (t *Table) putTasks(ctx context.Context, i uint64, w writer, tasks []replica.Task) error {
	return t.putRecord(ctx, t.names.tasks(i), kindTasks, "leader", w, func(was *object) (any, int) {
		if tasks == nil && was != nil {
			return tasksRecord{w, was.tasks.Tasks}, len(was.tasks.Tasks)
		}
		return tasksRecord{w, tasks}, len(tasks)
	})
}

// plan is what a batch changes.
type plan struct {
	batch  *replica.Batch
	orders map[uint64]*change // by member
	tasks  [][]replica.Task   // parts of the list in force, as they become; nil: it does not change
	parts  uint64             // how many there are then
}

// change is what a batch changes in the orders of a member.
type change struct{ set, drop []replica.Order }

// plan returns what a batch changes. It fails if a record becomes too large.
func (t *Table) plan(b *replica.Batch) (*plan, error) {
	p := &plan{batch: b, orders: make(map[uint64]*change), parts: max(t.current.table.Parts, 1)}
	of := func(id uint64) *change {
		if p.orders[id] == nil {
			p.orders[id] = &change{}
		}
		return p.orders[id]
	}
	for _, o := range b.Dropped {
		of(o.Member).drop = append(of(o.Member).drop, o)
	}
	for _, o := range b.Orders {
		of(o.Member).set = append(of(o.Member).set, o)
	}
	for _, id := range slices.Sorted(maps.Keys(p.orders)) {
		was := cmp.Or(t.cache.object(t.names.orders(id)), &object{})
		next := was.orders.with(writer{b.Epoch, b.Version}, p.orders[id].set, p.orders[id].drop)
		if _, err := t.newLease(nil, t.names.orders(id), kindOrders, "", next, "", 0); err != nil {
			return nil, err
		}
	}
	return p, t.planTasks(p)
}

// planTasks finds the parts of the list in force after a batch. A task's name says in which part it is.
// They are so many that a part has a quarter of its room, on average.
func (t *Table) planTasks(p *plan) error {
	if len(p.batch.Tasks)+len(p.batch.Deleted) == 0 {
		return nil
	}
	all, size := make(map[string]replica.Task), uint64(0) // at most
	for _, o := range t.cache.all(kindTasks) {
		size += uint64(len(o.text(keyRecord)))
		for _, task := range o.tasks.Tasks {
			all[task.Name] = task
		}
	}
	for _, name := range p.batch.Deleted {
		delete(all, name)
	}
	for _, task := range p.batch.Tasks {
		text, err := encode(task)
		if err != nil || len(text) > maxTask {
			return cmp.Or(err, fmt.Errorf("%w: task %.100q has %d bytes, and may have %d", errTooLarge, task.Name, len(text), maxTask))
		}
		all[task.Name], size = task, size+uint64(len(text))
	}
	for size > p.parts*maxRecord/4 {
		p.parts *= 2
	}
	p.tasks = make([][]replica.Task, p.parts)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		h := fnv.New64a()
		_, _ = h.Write([]byte(name)) // it never fails
		i := h.Sum64() % p.parts
		p.tasks[i] = append(p.tasks[i], all[name])
	}
	return nil
}

// carryOut writes a batch, if the caller leads: tasks before orders. p may be nil.
func (t *Table) carryOut(ctx context.Context, p *plan) error {
	if p == nil || !t.isLeading() {
		return nil
	}
	b, w := p.batch, writer{p.batch.Epoch, p.batch.Version}
	for i, tasks := range slices.Backward(p.tasks) { // a task that gets into a new part is in both for a moment
		was := t.cache.object(t.names.tasks(uint64(i)))
		if was != nil && was.genuine && reflect.DeepEqual(was.tasks.Tasks, tasks) {
			continue
		}
		if err := t.putTasks(ctx, uint64(i), w, append([]replica.Task{}, tasks...)); err != nil {
			return err
		}
	}
	err := each(slices.Sorted(maps.Keys(p.orders)), func(id uint64) error { return t.putOrders(ctx, id, &w, p.orders[id]) })
	if err != nil {
		return err
	}
	err = each(slices.Sorted(maps.Keys(b.Evict)), func(id uint64) error {
		beat := b.Evict[id]
		return t.mark(ctx, id, goneEvicted, &beat)
	})
	if err != nil || !b.Listed && len(b.Restarted) == 0 {
		return err
	}
	return t.changeTable(ctx, func(r *tableRecord) { // a task's Generation is written before its request ends
		if r.Leader == t.self && r.Epoch == b.Epoch {
			r.Listed = r.Listed || b.Listed
			r.ask(nil, b.Restarted)
		}
	})
}

// claim makes a new leader the writer of all records of leaders (O6), if all of them were listed.
// It changes nothing else in them, and makes those that are missing. From then on no batch of an
// earlier leader takes effect.
func (t *Table) claim(ctx context.Context, all bool) error {
	r := t.current.table
	if !all || r.Leader != t.self || r.Epoch == t.leads {
		return nil
	}
	w, parts, genuine := writer{r.Epoch, r.Epoch}, r.Parts, uint64(0)
	for _, o := range t.cache.all(kindTasks) {
		if parts = max(parts, o.id+1); o.genuine {
			genuine++
		}
	}
	err := each(t.cache.all(kindMember, kindOrders), func(o *object) error {
		if o.kind == kindMember && (o.gone != "" || t.cache.object(t.names.orders(o.id)) != nil) {
			return nil
		}
		return t.putOrders(ctx, o.id, &w, &change{})
	})
	for i := range parts {
		err = cmp.Or(err, t.putTasks(ctx, i, w, nil))
	}
	if err == nil && (parts != r.Parts || genuine < parts) { // what is lost of the list, a Source answers first
		err = t.changeTable(ctx, func(now *tableRecord) {
			if now.Leader == t.self && now.Epoch == r.Epoch {
				now.Parts, now.Listed = parts, now.Listed && genuine == parts
			}
		})
	}
	if err != nil {
		return t.leave(ctx, err)
	}
	t.leads, t.read = r.Epoch, false
	return nil
}

// tidy deletes what members that are gone have left, once no order names them: the orders, and then
// the record, so that until then the mark is there. An ID of which a Sync may be under way is kept for
// longer than any lease. A View has shown each mark, unless this is the last member.
func (t *Table) tidy(ctx context.Context) error {
	last := !slices.ContainsFunc(t.cache.all(kindMember), func(o *object) bool { return o.gone == "" })
	if !last && !t.isLeading() {
		return nil
	}
	var over []uint64
	gone := make(map[uint64]bool)
	for _, o := range t.cache.all(kindMember, kindOrders) {
		record, orders := t.cache.object(t.names.member(o.id)), t.cache.object(t.names.orders(o.id))
		left := record != nil && record.gone == goneLeft
		if gone[o.id] || record != nil && record.gone == "" || orders != nil && len(orders.orders.Orders) > 0 && !last {
			continue
		}
		gone[o.id] = true
		since, seen := t.marked[o.id]
		if !seen {
			t.marked[o.id] = time.Now()
		}
		if left && (seen || last) || seen && time.Since(since) > t.current.table.Lease*11/10 {
			over = append(over, o.id)
		}
	}
	maps.DeleteFunc(t.marked, func(id uint64, _ time.Time) bool { return !gone[id] })
	return each(over, func(id uint64) error { return t.delete(ctx, id) })
}

// tidyLast deletes what is left of members, if the caller is the last one that leaves.
func (t *Table) tidyLast(ctx context.Context) error {
	_, err := t.list(ctx, scopeMembers)
	return inTurn(err,
		func() error { _, err := t.list(ctx, scopeLeader); return err },
		func() error { return t.tidy(ctx) })
}

// delete deletes the Leases of an ID that is gone, unless they have changed.
func (t *Table) delete(ctx context.Context, id uint64) error {
	for _, name := range []string{t.names.orders(id), t.names.member(id)} {
		o := t.cache.object(name)
		if o == nil {
			continue
		}
		if err := t.client.delete(ctx, o.lease.Metadata); isConflict(err) {
			_, err = t.get(ctx, name)
			return err
		} else if err != nil {
			return err
		}
		t.cache.do(func() { t.cache.forget(name) })
	}
	return nil
}

// each calls f for all, some at the same time.
func each[T any](all []T, f func(T) error) error {
	errs, slots := make([]error, len(all)), make(chan struct{}, parallel)
	var group sync.WaitGroup
	for i, one := range all {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = f(one)
			<-slots
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
