package mirror

// The copy, and how it is kept: a read, then a watch, then a read where that ended.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ErrCluster says that etcd is not the one that it was: another cluster answers
// at its endpoints, or the same one was set back to an older state. Revisions
// and leases from before mean nothing there.
var ErrCluster = errors.New("another etcd cluster, or an older state of it")

// KV is a key as it stood at some revision. Nobody changes it.
type KV struct {
	Key         string
	Value       []byte // nil where Options.Keep declined it
	Create, Mod int64
	Lease       int64
}

// Change is what became of one key. Of several changes between two calls of
// apply, only the last counts: a key that was deleted and made again changes
// from Old to New, with another Create.
type Change struct {
	Key      string
	Old, New *KV // nil: absent
}

// Options says what of a range is copied.
type Options struct {
	// From and End are the range, End excluded. See [Prefix].
	From, End string

	// Keep says whose values are wanted. Others are not read, though a watch
	// brings them, and not kept. Nil: all are.
	Keep func(key string) bool

	// Logger hears of reads that had to be repeated. Nil: nobody does.
	Logger *slog.Logger
}

// Prefix returns the range of all keys that begin with p.
func Prefix(p string) (from, end string) { return p, clientv3.GetPrefixRangeEnd(p) }

// At says as of when a state holds.
type At struct {
	Cluster  uint64 // the cluster's id
	Revision int64
}

// Mirror is the copy. Run fills it; Reached may be called from anywhere. What it
// holds is handed to apply and not kept for anyone else to see: who needs the
// state builds it, in the form that he needs it in.
type Mirror struct {
	client *clientv3.Client
	opts   Options
	log    *slog.Logger

	cluster uint64 // 0 until the first read of a Run
	state   map[string]*KV
	stateOf uint64 // the cluster that state is of; 0: its revisions mean nothing
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

// quietFor is how long nothing may come before the mirror looks whether it is
// still the same cluster that has nothing to say. A watch that is resumed on
// another one with lower revisions is silent for ever.
const quietFor = 5 * time.Second

// Run reads the range and follows it. It calls apply, always from the same
// goroutine, first with everything there is, which may be nothing, then with
// what changes, in the order of revisions, whole revisions at a time; a call
// without changes only says how far it is. Errors of etcd are retried for as
// long as ctx lives.
//
// It returns ctx's cause, or an error that wraps ErrCluster. A Mirror may be run
// again after that, by one goroutine at a time: the first call of apply is then
// the difference from what the last Run left, and where the cluster is another
// one, every key that is there counts as changed.
func (m *Mirror) Run(ctx context.Context, apply func(At, []Change)) error {
	m.cluster = 0
	m.reached.begin()
	backoff := time.Duration(0)
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
			backoff = 0
		}
		m.log.Debug("read again after a watch ended", "range", m.opts.From, "err", err)
		backoff = min(max(2*backoff, 20*time.Millisecond), 2*time.Second)
		if err := pause(ctx, backoff); err != nil {
			m.reached.end(err)
			return err
		}
	}
}

// follow reads once and watches until that fails.
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

// difference replaces the state and returns what that changes.
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

// watch hands out what happens after rev until the watch ends.
func (m *Mirror) watch(ctx context.Context, rev int64, apply func(At, []Change)) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	responses := m.client.Watch(ctx, m.opts.From,
		clientv3.WithRange(m.opts.End), clientv3.WithRev(rev+1), clientv3.WithProgressNotify(),
		clientv3.WithFragment()) // a thousand revisions of a megabyte each do not fit into one message
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

// take puts events into the state and returns what they change, and up to which
// revision. Several events of one key become one change.
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

// check notes the cluster's id, and objects to another one.
func (m *Mirror) check(cluster uint64) error {
	if m.cluster == 0 {
		m.cluster = cluster
	}
	if m.cluster != cluster {
		return fmt.Errorf("%w: it was %x and is %x", ErrCluster, m.cluster, cluster)
	}
	return nil
}

// probe asks whether this is still the cluster that is watched, no older than
// it was.
func (m *Mirror) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	resp, err := m.client.Get(ctx, m.opts.From, clientv3.WithKeysOnly())
	if err != nil {
		return nil // the watch itself will tell, or the next probe
	}
	if err := m.check(resp.Header.ClusterId); err != nil {
		return err
	}
	if resp.Header.Revision < m.reached.revision() {
		return fmt.Errorf("%w: at revision %d after %d", ErrCluster, resp.Header.Revision, m.reached.revision())
	}
	return nil
}

// pause waits for about d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
