package etcd

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

const (
	// maxOps is the number of operations of a transaction. etcd's limit is 128 by default.
	maxOps = 100
	// reserved is how many of them head and the caller's own records need.
	reserved = 30
	// maxBytes is the size of its keys and values. etcd's limit is 1.5 MiB by default.
	maxBytes = 1 << 20
)

// transaction is written as a whole, if what it replaces has not changed since it was read.
type transaction struct {
	t     *Table
	cmps  []clientv3.Cmp
	ops   []clientv3.Op
	bytes int
	err   error // of a record that cannot be written

	puts  []string                    // the keys
	own   []string                    // the caller's own keys that are to be read
	known map[string]*mvccpb.KeyValue // the others, and the table's record

	changes        bool   // it changes members, orders or tasks
	units          int    // how many it has
	gone           string // of a unit: the ID of a member whose record it removes
	members, tasks int    // of a unit: what it adds to the counts of the batchRecord
}

// compare makes a transaction fail if a record has changed since it was read.
func (tx *transaction) compare(s *snapshot, key string) {
	tx.bytes += 2 * len(tx.t.prefix+key) // also for what writes it
	tx.cmps = append(tx.cmps, clientv3.Compare(clientv3.ModRevision(tx.t.prefix+key), "=", s.mod(key)))
}

// put replaces a record.
func (tx *transaction) put(s *snapshot, key string, record any) {
	value, err := encode(record, s.kvs[key].GetVersion()+1)
	if len(value) > maxBytes {
		err = fmt.Errorf("the value of %s%.100s has %d bytes, and etcd takes %d: run fewer tasks on each replica, or give them shorter names",
			tx.t.prefix, key, len(value), maxBytes)
	}
	tx.compare(s, key)
	tx.puts = append(tx.puts, key)
	tx.ops, tx.bytes, tx.err = append(tx.ops, clientv3.OpPut(tx.t.prefix+key, value)), tx.bytes+len(value), cmp.Or(tx.err, err)
}

// delete deletes a record, if it is there.
func (tx *transaction) delete(s *snapshot, key string) {
	tx.compare(s, key)
	tx.ops = append(tx.ops, clientv3.OpDelete(tx.t.prefix+key))
}

// write is a Sync under way.
type write struct {
	t *Table
	u *replica.Update

	published bool // what the caller says of itself is written
	done      bool // everything is
	batch     bool // the batch takes effect, so far
	guess     bool // nothing was read: what the last call has read is compared
	// units are the parts that must be in one transaction: all that is for a member, or a task.
	units []*transaction
}

// next returns the next transaction, by what was read after the last one, or nil.
func (w *write) next(s *snapshot) (*transaction, error) {
	if w.done || w.u.Server != s.table.Server {
		return nil, nil
	}
	u, self := w.u, idText(w.u.Self)
	leaves := slices.Contains(u.Left, u.Self)
	if s.mod(removed+self) > 0 && (!w.published || !leaves) {
		return nil, replica.ErrEvicted
	}
	if !w.published && s.beat(self).Heartbeat >= u.Member.Heartbeat {
		return nil, nil
	}
	tx, table, batch := &transaction{t: w.t, own: ownKeys(self)}, s.table, s.batch
	var changed []string
	if !w.published {
		if table = w.publish(s); table.Epoch != s.table.Epoch {
			batch.Version = table.Epoch
			tx.ops = append(tx.ops, clientv3.OpPut(w.t.prefix+keyEpoch, idText(table.Epoch)))
		}
		if !leaves && w.putSelf(tx, s) {
			changed = append(changed, self)
		}
	}
	for _, n := range w.units {
		if len(tx.ops) > 0 && (max(len(tx.ops)+len(n.ops), len(tx.cmps)+len(n.cmps)) > maxOps-reserved || tx.bytes+n.bytes > maxBytes) {
			break
		}
		tx.cmps, tx.ops, tx.bytes = append(tx.cmps, n.cmps...), append(tx.ops, n.ops...), tx.bytes+n.bytes
		batch.Members, batch.Tasks, tx.units = batch.Members+n.members, batch.Tasks+n.tasks, tx.units+1
		if n.gone != "" {
			changed = append(changed, n.gone)
		}
	}
	if w.batch {
		batch.Version = u.Batch.Version
		tx.compare(s, keyBatch)
		if tx.units == len(w.units) { // a task's Generation is written before its request ends
			table.Listed = table.Listed || u.Batch.Listed
			for _, name := range u.Batch.Restarted {
				table.Asks = table.Asks.with(replica.Ask{Verb: "restarted", Target: name})
			}
		}
	}
	if tx.compare(s, keyTable); !reflect.DeepEqual(table, s.table) {
		tx.put(s, keyTable, table)
	}
	if batch != s.batch {
		tx.put(s, keyBatch, batch)
	}
	if len(changed) > 0 {
		tx.ops = append(tx.ops, clientv3.OpPut(w.t.prefix+keyChanged, strings.Join(changed, " ")))
	}
	if w.guess {
		tx.compare(s, orders+self)
		tx.compare(s, reports+self)
		tx.known, tx.own = s.kvs, slices.DeleteFunc(tx.own, func(key string) bool { return !slices.Contains(tx.puts, key) })
	}
	tx.changes = len(changed) > 0 || batch != s.batch
	return tx, tx.err
}

// remembered returns what the last call of the ID has read, if it suffices for a heartbeat or a report,
// and otherwise nil. The transaction fails if it has changed.
func (w *write) remembered(last *snapshot) *snapshot {
	w.guess = false
	if w.done || last == nil {
		return nil
	}
	u, self := w.u, idText(w.u.Self)
	isPlain := u.Campaign == 0 && !u.Confirm && u.Batch == nil && len(u.Asks)+len(u.Left) == 0
	if !isPlain || u.Server != last.table.Server || last.mod(members+self) == 0 || last.beat(self).Heartbeat >= u.Member.Heartbeat {
		return nil
	}
	w.guess = true
	return last
}

// written records that a transaction was written.
func (w *write) written(tx *transaction) {
	w.published, w.units = true, w.units[tx.units:]
	w.done = len(w.units) == 0
}

// publish returns the table's record with what the Update changes in it, but for its batch.
func (w *write) publish(s *snapshot) tableRecord {
	u, r, applied := w.u, s.table, cmp.Or(w.u.Report, &replica.Report{}).Applied
	r.Lease = max(r.Lease, min(u.Member.Lease, replica.MaxLease))
	for _, n := range []uint64{u.Member.Epoch, applied} {
		if n > max(r.Seen, r.Epoch, s.batch.Version) && n < replica.MaxSeen { // above what leaders have written
			r.Seen = n
		}
	}
	if r.Confirmed = r.Confirmed || u.Confirm; r.Confirmed && u.Epoch == r.Epoch && u.Campaign > r.Epoch && u.Campaign < replica.MaxEpoch {
		r.Epoch, r.Leader = u.Campaign, u.Self
	}
	r.Asks = r.Asks.with(u.Asks...)
	return r
}

// putSelf adds the caller's own records, and reports whether the member's has changed.
func (w *write) putSelf(tx *transaction, s *snapshot) (changed bool) {
	u, self := w.u, idText(w.u.Self)
	record, was := memberRecord{Member: u.Member}, s.kvs[members+self]
	same, _ := encode(record, was.GetVersion())
	tx.compare(s, removed+self)
	if tx.compare(s, members+self); same != string(was.GetValue()) {
		tx.put(s, members+self, record)
		changed = true
	}
	tx.put(s, beats+self, beatRecord{u.Member.Heartbeat, u.Member.Epoch})
	if u.Report != nil {
		tx.put(s, reports+self, reportRecord{u.Member.Heartbeat, *u.Report})
	}
	return changed
}

// reads returns operations that read what the Update replaces beside the caller's own records, and for
// a campaign all that it checks.
func (w *write) reads(opts ...clientv3.OpOption) (ops []clientv3.Op) {
	if w.done {
		return nil
	}
	u, b, keys := w.u, cmp.Or(w.u.Batch, &replica.Batch{}), make(map[string]bool)
	if u.Campaign > 0 {
		ops = append(ops, w.t.all(orders, opts...), w.t.all(tasks, opts...), w.t.all(removed, opts...))
	}
	for _, id := range slices.AppendSeq(slices.Clone(u.Left), maps.Keys(b.Evict)) {
		for _, kind := range kinds {
			keys[kind+idText(id)] = true
		}
	}
	for _, o := range slices.Concat(b.Orders, b.Dropped) {
		keys[orders+idText(o.Member)] = true
	}
	for _, task := range b.Tasks {
		keys[tasks+escape(task.Name)] = true
	}
	for _, name := range b.Deleted {
		keys[tasks+escape(name)] = true
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		ops = append(ops, w.t.get(key, opts...))
	}
	return ops
}

// plan makes the units, by a snapshot that has what reads has read.
func (w *write) plan(s *snapshot) error {
	if w.done || w.u.Server != s.table.Server {
		return nil
	}
	u, b := w.u, w.u.Batch
	w.units = nil
	if w.publish(s).Epoch != s.table.Epoch { // before an election
		if err := s.check(true); err != nil {
			return err
		}
		w.forget(s)
	}
	for _, id := range u.Left {
		w.remove(s, idText(id))
	}
	w.batch = b != nil && s.table.Leader == u.Self && s.table.Epoch == b.Epoch && b.Version >= s.batch.Version
	if !w.batch {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(b.Evict)) {
		if s.beat(idText(id)).Heartbeat == b.Evict[id] && !slices.Contains(u.Left, id) {
			w.remove(s, idText(id))
		}
	}
	for _, task := range b.Tasks {
		w.replace(s, tasks+escape(task.Name), task)
	}
	for _, name := range b.Deleted {
		w.replace(s, tasks+escape(name), nil)
	}
	byKey := make(map[string]ordersRecord)
	for i, o := range slices.Concat(b.Dropped, b.Orders) {
		key := orders + idText(o.Member)
		r, ok := byKey[key]
		if !ok {
			if r, ok = decode[ordersRecord](s.kvs[key]); !ok && s.mod(key) > 0 {
				return s.lost("the key %s was changed by hand", key)
			}
			if r.Orders == nil {
				r.Orders = make(map[string]orderRecord)
			}
		}
		if byKey[key] = r; i < len(b.Dropped) {
			delete(r.Orders, o.Task)
		} else {
			r.Orders[o.Task] = orderRecord{o.Version, o.Stop, o.Input, o.Generation}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		if r := byKey[key]; len(r.Orders) > 0 {
			w.replace(s, key, r)
		} else {
			w.replace(s, key, nil)
		}
	}
	for _, n := range w.units {
		if n.err != nil && !w.published {
			return fmt.Errorf("%w: %w", orchestrator.ErrRejected, n.err)
		}
	}
	return nil
}

// replace adds a record of a batch to the units; nil: its deletion.
func (w *write) replace(s *snapshot, key string, record any) {
	n, delta := &transaction{t: w.t}, 0
	if record == nil && s.mod(key) > 0 {
		delta = -1
		n.delete(s, key)
	} else if record != nil {
		if n.put(s, key, record); s.mod(key) == 0 {
			delta = 1
		}
	}
	if strings.HasPrefix(key, tasks) {
		n.tasks = delta
	} else {
		n.members = delta
	}
	w.units = append(w.units, n)
}

// remove adds the removal of a member and its report to the units. Its orders stay.
func (w *write) remove(s *snapshot, id string) {
	n := &transaction{t: w.t, gone: id}
	for _, kind := range []string{members, beats, reports} {
		n.delete(s, kind+id)
	}
	n.put(s, removed+id, removedRecord{time.Now().UTC()})
	w.units = append(w.units, n)
}

// forget forgets the IDs that were removed a day ago and that no order names.
func (w *write) forget(s *snapshot) {
	for key, kv := range s.kvs {
		id, ok := strings.CutPrefix(key, removed)
		if r, _ := decode[removedRecord](kv); ok && s.mod(orders+id) == 0 && time.Since(r.At) > 24*time.Hour {
			n := &transaction{t: w.t}
			n.delete(s, key)
			w.units = append(w.units, n)
		}
	}
}

// verbs has the verb that an ask begins or ends, by its own.
var verbs = map[string]string{"drain": "drain", "undrain": "drain", "hold": "hold", "release": "hold", "restart": "restart", "restarted": "restart"}

// asks are requests of operators, by verb and target.
type asks map[string]map[string]replica.Ask

// with returns the requests with further ones.
func (all asks) with(more ...replica.Ask) asks {
	if len(more) == 0 {
		return all
	}
	changed := asks{"drain": {}, "hold": {}, "restart": {}}
	for verb, asks := range all {
		maps.Copy(changed[verb], asks)
	}
	for _, a := range more {
		if verb := verbs[a.Verb]; verb == a.Verb && verb != "" {
			changed[verb][a.Target] = a
		} else {
			delete(changed[verb], a.Target)
		}
	}
	return changed
}
