// Package mirror keeps a local copy of a range of keys, with one read and one watch.
// It never misses a change: if the watch fails, it reads again and reports the
// difference.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// ErrCluster reports that another cluster answers at the endpoints of etcd, or that
// the cluster was reset to an older state. Earlier revisions and leases are invalid
// there.
var ErrCluster = errors.New("another etcd cluster, or an older state of it")

// KV is a key as of some revision. It is immutable.
type KV struct {
	Key         string
	Value       []byte // nil if Options.Keep returned false
	Create, Mod int64
	Lease       int64
}

// Change is the change of one key. Several changes of a key between two calls of
// apply are merged into one, from the first Old to the last New. So a key that was
// deleted and created again changes from Old to New with another Create.
type Change struct {
	Key      string
	Old, New *KV // nil: absent
}

// Options configures a Mirror.
type Options struct {
	// From and End delimit the range; End is excluded. See [Prefix].
	From, End string

	// Keep reports whether the value of a key is needed. Other values are neither
	// read nor kept, though a watch transfers them. Nil keeps all values.
	Keep func(key string) bool

	// Logger logs repeated reads at Debug. Nil logs nothing.
	Logger *slog.Logger
}

// Prefix returns the range of all keys that begin with p.
func Prefix(p string) (from, end string) { return p, clientv3.GetPrefixRangeEnd(p) }

// At identifies the state after a revision.
type At struct {
	Cluster  uint64 // the cluster's id
	Revision int64
}

// Mirror is the copy of a range. Run fills it, and Reached may be called from any
// goroutine. The copy is private: apply receives the changes, and builds from them
// whatever form the caller needs.
type Mirror struct {
	client *clientv3.Client
	opts   Options
	log    *slog.Logger

	cluster uint64 // 0 until the first read of a Run
	state   map[string]*KV
	stateOf uint64 // the cluster of state; 0: its revisions are invalid
	reached progress
}

// New returns an empty mirror.
func New(c *clientv3.Client, o Options) *Mirror {
	m := &Mirror{client: c, opts: o, log: o.Logger, state: make(map[string]*KV)}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.opts.Keep == nil {
		m.opts.Keep = func(string) bool { return true }
	}
	m.reached.changed = make(chan struct{})
	return m
}

// quietFor is how long the watch may be silent before the mirror checks that the
// cluster is the same. A watch that is resumed on another cluster with lower
// revisions stays silent forever.
const quietFor = 5 * time.Second

// Run reads the range and follows it. It calls apply, always from the same
// goroutine, first with all keys, which may be none, then with the changes in the
// order of revisions. No call splits a revision. A call without changes only reports
// progress. Run retries errors of etcd until ctx ends.
//
// It returns the cause of ctx, or an error that wraps ErrCluster. A Mirror may be
// run again after that, by one goroutine at a time. The first call of apply then
// reports the difference from the end of the last Run. If the cluster is another
// one, every existing key counts as changed.
func (m *Mirror) Run(ctx context.Context, apply func(At, []Change)) error {
	m.cluster = 0
	m.reached.begin()
	retry := backoff.Backoff{First: 20 * time.Millisecond, Longest: 2 * time.Second}
	for {
		progressed, err := m.follow(ctx, apply)
		switch {
		case ctx.Err() != nil:
			m.reached.end(context.Cause(ctx))
			return context.Cause(ctx)
		case errors.Is(err, ErrCluster):
			m.stateOf = 0
			m.reached.end(err)
			return err
		}
		if progressed {
			retry.Reset()
		}
		m.log.Debug("watch ended, reading again", "range", m.opts.From, "err", err)
		if !retry.Wait(ctx) {
			m.reached.end(context.Cause(ctx))
			return context.Cause(ctx)
		}
	}
}

// RunAcrossClusters runs the mirror until ctx ends, whichever cluster answers, and
// returns the cause of ctx. If the cluster is another one, or in an older state,
// apply receives the difference.
func (m *Mirror) RunAcrossClusters(ctx context.Context, apply func(At, []Change)) error {
	for {
		if err := m.Run(ctx, apply); !errors.Is(err, ErrCluster) {
			return err
		}
	}
}

// Reached waits until everything up to rev has been applied. rev must be the
// revision of a write within the range, or one that etcd had reached before Run
// began; any other may wait until the next write to the range. Reached returns the
// cause of ctx, or the error of Run if Run ended first.
func (m *Mirror) Reached(ctx context.Context, rev int64) error {
	for {
		reached, changed, err := m.reached.now()
		switch {
		case err != nil:
			return err
		case reached >= rev:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follow reads the range once, then watches it until the watch fails.
func (m *Mirror) follow(ctx context.Context, apply func(At, []Change)) (progressed bool, err error) {
	next, rev, err := m.read(ctx)
	if err != nil {
		return false, fmt.Errorf("read %s: %w", m.opts.From, err)
	}
	if rev < m.reached.revision() {
		return false, fmt.Errorf("%w: at revision %d after %d", ErrCluster, rev, m.reached.revision())
	}
	m.apply(rev, m.difference(next), apply)
	err = m.watch(ctx, rev, apply)
	return true, fmt.Errorf("watch %s: %w", m.opts.From, err)
}

func (m *Mirror) apply(rev int64, changes []Change, apply func(At, []Change)) {
	apply(At{m.cluster, rev}, changes)
	m.reached.advance(rev)
}

// difference replaces the state and returns the changes.
func (m *Mirror) difference(next map[string]*KV) []Change {
	var changes []Change
	for key, kv := range next {
		if old := m.state[key]; old == nil || old.Mod != kv.Mod || m.stateOf != m.cluster {
			changes = append(changes, Change{key, old, kv})
		}
	}
	for key, old := range m.state {
		if next[key] == nil {
			changes = append(changes, Change{Key: key, Old: old})
		}
	}
	slices.SortFunc(changes, func(a, b Change) int { return strings.Compare(a.Key, b.Key) })
	m.state, m.stateOf = next, m.cluster
	return changes
}

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

// watch passes on the changes after rev until the watch ends.
func (m *Mirror) watch(ctx context.Context, rev int64, apply func(At, []Change)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	responses := m.client.Watch(ctx, m.opts.From,
		clientv3.WithRange(m.opts.End), clientv3.WithRev(rev+1), clientv3.WithProgressNotify(),
		clientv3.WithFragment()) // one message cannot hold a thousand revisions of a megabyte
	quiet := time.NewTimer(quietFor)
	defer quiet.Stop()
	for {
		select {
		case resp, ok := <-responses:
			if !ok {
				return errors.New("the watch ended")
			}
			if err := resp.Err(); err != nil {
				return err
			}
			if err := m.check(resp.Header.ClusterId); err != nil {
				return err
			}
			if changes, rev := m.take(resp.Events); rev > 0 {
				m.apply(rev, changes, apply)
			} else if resp.IsProgressNotify() {
				m.apply(max(resp.Header.Revision, m.reached.revision()), nil, apply)
			}
		case <-quiet.C:
			if err := m.probe(ctx); err != nil {
				return err
			}
		}
		quiet.Reset(quietFor)
	}
}

// take applies events to the state. It returns the changes, one for each key, and
// the last revision.
func (m *Mirror) take(events []*clientv3.Event) (changes []Change, rev int64) {
	at := make(map[string]int, len(events))
	for _, ev := range events {
		key := string(ev.Kv.Key)
		rev = ev.Kv.ModRevision
		old := m.state[key]
		var kv *KV
		if ev.Type == clientv3.EventTypePut {
			kv = m.kv(key, ev.Kv.Value, ev.Kv.CreateRevision, ev.Kv.ModRevision, ev.Kv.Lease)
			m.state[key] = kv
		} else {
			delete(m.state, key)
		}
		if i, ok := at[key]; ok {
			changes[i].New = kv
			continue
		}
		at[key] = len(changes)
		changes = append(changes, Change{key, old, kv})
	}
	return changes, rev
}

func (m *Mirror) kv(key string, value []byte, create, mod, lease int64) *KV {
	if !m.opts.Keep(key) {
		value = nil
	}
	return &KV{Key: key, Value: value, Create: create, Mod: mod, Lease: lease}
}

// check returns an error if the cluster id has changed. It records the first id.
func (m *Mirror) check(cluster uint64) error {
	if m.cluster == 0 {
		m.cluster = cluster
	}
	if m.cluster != cluster {
		return fmt.Errorf("%w: cluster id was %x, is %x", ErrCluster, m.cluster, cluster)
	}
	return nil
}

// probe checks that the cluster is still the same and not in an older state.
func (m *Mirror) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	resp, err := m.client.Get(ctx, m.opts.From, clientv3.WithKeysOnly())
	if err != nil {
		return nil // left to the watch or the next probe
	}
	if err := m.check(resp.Header.ClusterId); err != nil {
		return err
	}
	if resp.Header.Revision < m.reached.revision() {
		return fmt.Errorf("%w: at revision %d after %d", ErrCluster, resp.Header.Revision, m.reached.revision())
	}
	return nil
}

// progress is the revision that a mirror has reached.
type progress struct {
	mu      sync.Mutex
	rev     int64
	err     error
	changed chan struct{} // closed and replaced at each change
}

func (p *progress) now() (rev int64, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rev, p.changed, p.err
}

func (p *progress) revision() int64 {
	rev, _, _ := p.now()
	return rev
}

func (p *progress) begin()            { p.set(0, nil) }
func (p *progress) advance(rev int64) { p.set(rev, nil) }
func (p *progress) end(err error)     { p.set(0, err) }

func (p *progress) set(rev int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rev, p.err = rev, err
	close(p.changed)
	p.changed = make(chan struct{})
}
