package etcd

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica"
)

// lose makes the table another Server, because of a sign that acknowledged data is lost (B7). It
// deletes all records but the requests of operators and the IDs that were removed. Members that live
// publish themselves and their reports anew, and what they run goes on without orders (O8). If another
// replica was first, lose does nothing.
func (t *Table) lose(ctx context.Context, why *lostError) error {
	resp, err := t.client.Txn(ctx).Then(t.all(keyTable), t.get(keyBatch), t.all(members)).Commit()
	if err != nil {
		return err
	}
	s := &snapshot{kvs: make(map[string]*mvccpb.KeyValue)}
	s.add(t, resp.Responses)
	if s.mod(keyTable) != why.table {
		return nil
	}
	table := tableRecord{Format: format, Server: rand.Text(), Cluster: strconv.FormatUint(resp.Header.ClusterId, 16)}
	if was, genuine := decode[tableRecord](s.kvs[keyTable]); genuine {
		batch, _ := decode[batchRecord](s.kvs[keyBatch])
		table.Asks, table.Lease, table.Seen = was.Asks, max(was.Lease, 0), min(max(was.Seen, was.Epoch, batch.Version), replica.MaxSeen-1)
	} else if err := t.checkForeign(ctx, s.mod(keyTable) > 0); err != nil {
		return err
	}
	for key, kv := range s.kvs {
		if m, _ := decode[replica.Member](kv); strings.HasPrefix(key, members) { // Confirm waits for it
			table.Lease = max(table.Lease, m.Lease)
		}
	}
	table.Lease = min(table.Lease, replica.MaxLease)
	tx := &transaction{t: t}
	for _, kind := range []string{members, beats, reports, orders, tasks} {
		tx.ops = append(tx.ops, clientv3.OpDelete(t.prefix+kind, clientv3.WithPrefix()))
	}
	tx.ops = append(tx.ops, clientv3.OpDelete(t.prefix+keyEpoch))
	tx.put(s, keyTable, table)
	tx.put(s, keyBatch, batchRecord{})
	resp, err = t.client.Txn(ctx).If(tx.cmps...).Then(tx.ops...).Commit()
	if err == nil && resp.Succeeded && len(s.kvs) > 0 {
		t.log.Warn("records were lost or changed by hand, tasks run on and the table begins anew", "table", t.prefix, "reason", why.text)
	}
	return err
}

// checkForeign returns an error that wraps ErrForeign if another program has put keys under the
// prefix. It reads a few of them: there may be millions.
func (t *Table) checkForeign(ctx context.Context, unreadable bool) error {
	some, err := t.client.Get(ctx, t.prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1000))
	if err != nil {
		return err
	}
	other := func(kv *mvccpb.KeyValue) bool { return !isOurs(strings.TrimPrefix(string(kv.Key), t.prefix)) }
	i := slices.IndexFunc(some.Kvs, other)
	if i < 0 && unreadable && len(some.Kvs) == 1 {
		i = 0
	}
	if i < 0 {
		return nil
	}
	return fmt.Errorf("%w: another program has put the key %s: give this service a prefix of its own", replica.ErrForeign, some.Kvs[i].Key)
}
