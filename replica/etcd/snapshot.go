package etcd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica"
)

// snapshot is what was read of the table.
type snapshot struct {
	revision int64
	cluster  string
	kvs      map[string]*mvccpb.KeyValue // by key, without the prefix
	table    tableRecord
	batch    batchRecord
}

// lostError is a sign that acknowledged data is lost (B7).
type lostError struct {
	text  string
	table int64 // the revision that wrote the table's record
}

func (e *lostError) Error() string { return e.text }

// lost returns an error that is a sign of a loss.
func (s *snapshot) lost(format string, args ...any) error {
	return &lostError{fmt.Sprintf(format, args...), s.mod(keyTable)}
}

// mod returns the revision that wrote a key; 0: it does not exist.
func (s *snapshot) mod(key string) int64 { return s.kvs[key].GetModRevision() }

// beat returns the heartbeat of a member; zero: it has no record.
func (s *snapshot) beat(id string) (r beatRecord) {
	if s.mod(members+id) > 0 {
		r, _ = decodeBeat(s.kvs[beats+id])
	}
	return r
}

// get returns an operation that reads a key, and prefix one that reads all that begin with it.
func (t *Table) get(key string, opts ...clientv3.OpOption) clientv3.Op {
	return clientv3.OpGet(t.prefix+key, opts...)
}

func (t *Table) all(prefix string, opts ...clientv3.OpOption) clientv3.Op {
	return t.get(prefix, append(opts, clientv3.WithPrefix())...)
}

// sinceOf returns the revision that a query names, and the version of the last batch then; 0: a full
// View is due. server is the table's; empty: it is not known yet.
func sinceOf(q replica.Query, server string) (revision int64, version uint64) {
	var of string
	var follow bool
	_, err := fmt.Sscan(q.Since, &of, &follow, &revision, &version)
	if err != nil || follow != q.Follow || server != "" && of != server {
		return 0, 0
	}
	return revision, version
}

// ownKeys returns the keys of an ID.
func ownKeys(id string) (keys []string) {
	for _, kind := range kinds {
		keys = append(keys, kind+id)
	}
	return keys
}

// own returns what the next call of an ID may begin with.
func (s *snapshot) own(id string) *snapshot {
	last := &snapshot{table: s.table, batch: s.batch, kvs: make(map[string]*mvccpb.KeyValue)}
	for _, key := range append(ownKeys(id), keyTable) {
		if kv := s.kvs[key]; kv != nil {
			last.kvs[key] = kv
		}
	}
	return last
}

// head returns operations that read what a query shows, and the caller's own keys that are given. leader
// is the one that is known. changes: the transaction that they are in writes members, orders or tasks. Its
// conditions hold for what was before it.
func (t *Table) head(q replica.Query, leader uint64, changes bool, own []string) []clientv3.Op {
	since, _ := sinceOf(q, "")
	of, full := clientv3.WithMinModRev(since+1), since == 0
	changed := func(key string, ops ...clientv3.Op) clientv3.Op { // if it was written since
		var cmps []clientv3.Cmp
		if !full && !changes {
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(t.prefix+key), ">", since))
		}
		return clientv3.OpTxn(cmps, ops, nil)
	}
	ops := []clientv3.Op{
		t.all(keyTable), t.get(keyEpoch), t.get(keyBatch), t.get(beats + idText(leader)),
		changed(keyChanged, t.all(members, of), t.all(removed, of), t.all(beats)),
	}
	for _, key := range own {
		ops = append(ops, t.get(key))
	}
	if q.Beats {
		ops = append(ops, t.all(beats))
	}
	switch {
	case q.Follow:
		ops = append(ops, t.all(reports, of), changed(keyBatch, t.all(orders, of)))
	case full:
		ops = append(ops, t.all(orders, clientv3.WithKeysOnly()))
	}
	if q.Follow && full {
		ops = append(ops, t.all(tasks))
	}
	return ops
}

// add records what the operations of a transaction have read.
func (s *snapshot) add(t *Table, all []*etcdserverpb.ResponseOp) {
	for _, r := range all {
		for _, kv := range r.GetResponseRange().GetKvs() {
			if key := strings.TrimPrefix(string(kv.Key), t.prefix); s.kvs[key] == nil || len(kv.Value) > 0 {
				s.kvs[key] = kv
			}
		}
		s.add(t, r.GetResponseTxn().GetResponses())
	}
}

// read returns what the operations of head have read, and the caller's own records that have not changed.
// The error is a sign of a loss, or wraps ErrForeign.
func (t *Table) read(resp *clientv3.TxnResponse, self string, was *known, unchanged map[string]*mvccpb.KeyValue) (*snapshot, error) {
	s := &snapshot{revision: resp.Header.Revision, cluster: strconv.FormatUint(resp.Header.ClusterId, 16), kvs: make(map[string]*mvccpb.KeyValue)}
	maps.Copy(s.kvs, unchanged)
	s.add(t, resp.Responses)
	table, ok1 := decode[tableRecord](s.kvs[keyTable])
	batch, ok2 := decode[batchRecord](s.kvs[keyBatch])
	_, ok3 := decode[replica.Member](s.kvs[members+self])
	beat, ok4 := decodeBeat(s.kvs[beats+self])
	s.table, s.batch = table, batch
	epoch := strings.TrimPrefix(idText(table.Epoch), "0") // without one the key is missing
	acked, own := was.server == table.Server, s.mod(members+self) > 0 || s.mod(beats+self) > 0
	switch {
	case s.mod(keyTable) == 0:
		return s, s.lost("the key table is missing")
	case strings.HasPrefix(table.Format, "replica ") && table.Format != format:
		return s, fmt.Errorf("%w: another version of this library has written the key table, in the format %q", replica.ErrForeign, table.Format)
	case !ok1, table.Format != format, table.Lease < 0, table.Lease > replica.MaxLease, table.Epoch >= replica.MaxEpoch:
		return s, s.lost("the key table was changed by hand")
	case table.Cluster != s.cluster:
		return s, s.lost("the table is of the etcd cluster %s, and this is %s", table.Cluster, s.cluster)
	case !ok2, string(s.kvs[keyEpoch].GetValue()) != epoch:
		return s, s.lost("the key batch or epoch was changed by hand")
	case own && (!ok3 || !ok4):
		return s, s.lost("the key members/%s or beats/%[1]s was changed by hand", self)
	case (s.revision < was.revision || unchanged != nil && s.revision == was.revision) && (acked || table.Confirmed): // otherwise another replica has found it
		return s, s.lost("etcd is set back: it had revision %d, and has %d", was.revision, s.revision)
	case acked && beat.Heartbeat < was.heartbeat && s.mod(removed+self) == 0:
		return s, s.lost("the key beats/%s is older than what this replica has put", self)
	}
	return s, nil
}

// check returns an error unless all that should have orders have the key, and if whole, unless all
// orders and tasks are as they were put.
func (s *snapshot) check(whole bool) error {
	count := batchRecord{Version: s.batch.Version, Tasks: s.batch.Tasks}
	if whole {
		count.Tasks = 0
	}
	for key, kv := range s.kvs {
		switch kind, _, _ := strings.Cut(key, "/"); kind + "/" {
		case orders:
			count.Members++
		case tasks:
			count.Tasks++
		default:
			continue
		}
		if whole && !genuine(kv) {
			return s.lost("the key %s was changed by hand", key)
		}
	}
	if count != s.batch {
		return s.lost("orders or tasks were deleted or added by hand: there are %+v, but should be %+v", count, s.batch)
	}
	return nil
}

// view returns what a query shows of a snapshot.
func (s *snapshot) view(q replica.Query) (v replica.View, err error) {
	since, version := sinceOf(q, s.table.Server)
	v = replica.View{
		Server: s.table.Server, Confirmed: s.table.Confirmed, Listed: s.table.Listed, Epoch: s.table.Epoch, Leader: s.table.Leader, Lease: s.table.Lease,
		Seen: max(s.table.Seen, s.table.Epoch, s.batch.Version), Full: since == 0, Revision: fmt.Sprintln(s.table.Server, q.Follow, s.revision, s.batch.Version),
		Beats: make(map[uint64]uint64), Reports: make(map[uint64]replica.Report), Drains: s.table.Asks["drain"], Restarts: s.table.Asks["restart"],
	}
	if hold, ok := s.table.Asks["hold"][""]; ok {
		v.Hold = &hold
	}
	if v.Full {
		err = s.check(q.Follow)
	}
	for _, key := range slices.Sorted(maps.Keys(s.kvs)) {
		err = cmp.Or(err, s.show(&v, q, key, s.mod(key) > since, version))
	}
	return v, err
}

// show adds a record to a View. One that cannot be read spoils no other, and a member that has it gets
// no tasks. changed: it was written since the last View, when the last batch had the given version.
func (s *snapshot) show(v *replica.View, q replica.Query, key string, changed bool, version uint64) error {
	kv := s.kvs[key]
	kind, name, _ := strings.Cut(key, "/")
	id, _ := strconv.ParseUint(name, 10, 64)
	self, beat := id == q.Self, s.beat(name)
	switch kind + "/" {
	case beats:
		if q.Beats || self || id == s.table.Leader {
			r, _ := decodeBeat(kv)
			v.Beats[id] = r.Heartbeat
		}
	case members:
		m, genuine := decode[replica.Member](kv)
		if !genuine || m.ID != id {
			m = replica.Member{ID: id, Lease: replica.MaxLease, Draining: true, Role: replica.CandidateOnly}
		}
		if m.Heartbeat, m.Epoch = beat.Heartbeat, beat.Epoch; changed && m.Heartbeat > 0 {
			v.Members = append(v.Members, m)
		}
	case removed:
		if changed {
			v.Gone = append(v.Gone, id)
		}
	case reports:
		r, genuine := decode[reportRecord](kv)
		if !genuine {
			r = reportRecord{Report: replica.Report{Applied: replica.MaxSeen}}
		}
		if self {
			v.Stored = r.Heartbeat
		}
		if q.Follow && changed {
			v.Reports[id] = r.Report
		}
	case tasks:
		if task, _ := decode[replica.Task](kv); v.Full && q.Follow {
			v.Tasks = append(v.Tasks, task)
		}
	case orders:
		if !self && !q.Follow {
			return nil
		}
		r, genuine := decode[ordersRecord](kv)
		if !genuine {
			return s.lost("the key %s was changed by hand", key)
		}
		for task, o := range r.Orders {
			if changed && o.Version >= version { // the last batch may have been written in part
				v.Orders = append(v.Orders, replica.Order{Member: id, Task: task, Version: o.Version, Stop: o.Stop, Input: o.Input, Generation: o.Generation})
			}
			if self && !o.Stop {
				v.OrderCount++
			}
		}
	}
	return nil
}
