package mirror

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// pageSize is the number of keys per request: some hundred kilobytes, which take
// etcd a few milliseconds.
const pageSize = 1000

// read returns the range as of one revision, and that revision. It reads the first
// page linearizably, so that the state is no older than the call, and the others at
// the revision of the first.
func (m *Mirror) read(ctx context.Context) (state map[string]*KV, rev int64, err error) {
	state = make(map[string]*KV, len(m.state))
	from := m.opts.From
	for {
		page, err := m.get(ctx, from, m.opts.End, rev, clientv3.WithKeysOnly())
		if err != nil {
			return nil, 0, err
		}
		if rev == 0 {
			if err := m.check(page.Header.ClusterId); err != nil {
				return nil, 0, err
			}
			rev = page.Header.Revision
		}
		for _, kv := range page.Kvs {
			state[string(kv.Key)] = m.kv(string(kv.Key), nil, kv.CreateRevision, kv.ModRevision, kv.Lease)
		}
		if err := m.readValues(ctx, page.Kvs, rev, state); err != nil {
			return nil, 0, err
		}
		if !page.More {
			return state, rev, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

// readValues reads the needed values of a page, one request for each run of adjacent
// keys.
func (m *Mirror) readValues(ctx context.Context, page []*mvccpb.KeyValue, rev int64, state map[string]*KV) error {
	for i := 0; i < len(page); i++ {
		if !m.opts.Keep(string(page[i].Key)) {
			continue
		}
		first := i
		for i+1 < len(page) && m.opts.Keep(string(page[i+1].Key)) {
			i++
		}
		values, err := m.get(ctx, string(page[first].Key), string(page[i].Key)+"\x00", rev)
		if err != nil {
			return err
		}
		for _, kv := range values.Kvs {
			state[string(kv.Key)].Value = kv.Value
		}
	}
	return nil
}

func (m *Mirror) get(ctx context.Context, from, end string, rev int64, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return m.client.Get(ctx, from, append(opts,
		clientv3.WithRange(end), clientv3.WithRev(rev), clientv3.WithLimit(pageSize))...)
}
