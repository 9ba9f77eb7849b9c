package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica"
)

// Table is a [replica.Backend] and a [replica.Waiter] under a prefix of etcd. It is safe for
// concurrent use, and replicas may share one.
type Table struct {
	client *clientv3.Client
	prefix string
	log    *slog.Logger
	err    error // of New

	mu     sync.Mutex
	newest known            // of all IDs, also of former lives
	known  map[uint64]known // by ID
}

// known is what a Table was answered for an ID: what etcd must still have.
type known struct {
	server    string
	revision  int64
	leader    uint64
	heartbeat uint64    // of the last Sync
	last      *snapshot // the table's record and those of the ID
}

// New returns the table under a prefix, such as "/pollers/". A slash is added if the prefix does
// not end in one. All replicas of a service give the same prefix, others another one. A bad
// argument is an error of all calls.
//
// New does not connect, and the table does not close the client.
func New(client *clientv3.Client, prefix string, opts ...Option) *Table {
	t := &Table{client: client, prefix: strings.TrimRight(prefix, "/") + "/", log: slog.Default(), known: make(map[uint64]known)}
	bad := client == nil || t.prefix == "/" || len(prefix) > 200 || slices.ContainsFunc(opts, func(o Option) bool { return o == nil })
	for _, opt := range opts {
		if !bad {
			opt(t)
		}
	}
	if bad || t.log == nil {
		t.err = fmt.Errorf("%w: it needs a client, a prefix of 1 to 200 bytes, a logger and no nil option", replica.ErrInvalid)
	}
	return t
}

// Option is an option of [New].
type Option func(*Table)

// WithLogger sets the logger. The default is slog.Default(). A table logs a warning if acknowledged
// data is lost.
func WithLogger(l *slog.Logger) Option { return func(t *Table) { t.log = l } }

// Guard returns a comparison that holds while the last election is the one with the given epoch. A
// leader guards its own transactions with it:
//
//	client.Txn(ctx).If(table.Guard(epoch)).Then(…)
func (t *Table) Guard(epoch uint64) clientv3.Cmp {
	return clientv3.Compare(clientv3.Value(t.prefix+keyEpoch), "=", idText(epoch))
}

// Sync is that of replica.Backend.
func (t *Table) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	v, err := t.call(ctx, u.Query, &write{t: t, u: &u})
	t.mu.Lock()
	for _, id := range u.Left {
		delete(t.known, id) // its life is over
	}
	t.mu.Unlock()
	v.Failed = make([]string, len(u.Asks))
	for i, ask := range u.Asks {
		if verbs[ask.Verb] == "" || ask.Verb == "restarted" {
			v.Failed[i] = fmt.Sprintf("the verb %q is unknown", ask.Verb)
		}
	}
	return v, err
}

// Read is that of replica.Backend.
func (t *Table) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	return t.call(ctx, q, &write{t: t, done: true})
}

// errAgain reports that something has changed during a call, which begins anew.
var errAgain = errors.New("the table has changed during the call")

// call writes, and then reads. After a sign that acknowledged data is lost it makes another Server,
// and begins anew.
func (t *Table) call(ctx context.Context, q replica.Query, w *write) (replica.View, error) {
	if t.err != nil {
		return replica.View{}, t.err
	}
	if conn := t.client.ActiveConnection(); conn != nil {
		conn.ResetConnectBackoff() // its pauses grow to two minutes while etcd is away
	}
	t.mu.Lock()
	was := t.known[q.Self]
	was.revision = t.newest.revision
	t.mu.Unlock()
	for losses := 0; ; {
		v, err := t.try(ctx, &q, w, &was)
		sign, isLost := errors.AsType[*lostError](err)
		switch {
		case err == nil:
			t.mu.Lock()
			defer t.mu.Unlock()
			if t.known[q.Self] = was; was.server != t.newest.server || was.revision > t.newest.revision {
				t.newest = was
			}
			return v, nil
		case isLost && losses < 3:
			losses++
			err = t.lose(ctx, sign)
		case errors.Is(err, errAgain) || errors.Is(err, rpctypes.ErrCompacted):
			err = ctx.Err()
		}
		if err != nil {
			return replica.View{}, fmt.Errorf("table %s: %w", t.prefix, t.explain(ctx, err))
		}
	}
}

// try is call until something has changed. It updates what is known.
func (t *Table) try(ctx context.Context, q *replica.Query, w *write, was *known) (replica.View, error) {
	var err error
	s := w.remembered(was.last)
	if s == nil {
		s, err = t.begin(ctx, *q, w, was)
	}
	for err == nil {
		tx, err2 := w.next(s)
		if err = err2; tx == nil || err != nil {
			break
		}
		var resp *clientv3.TxnResponse
		resp, err = t.client.Txn(ctx).If(tx.cmps...).Then(slices.Concat(tx.ops, t.head(*q, was.leader, tx.changes, tx.own))...).Commit()
		if err == nil && !resp.Succeeded {
			was.last, err = nil, errAgain
		} else if err == nil {
			w.written(tx)
			s, err = t.read(resp, idText(q.Self), was, tx.known)
		}
	}
	if err != nil {
		return replica.View{}, err
	}
	known := known{server: s.table.Server, revision: s.revision, leader: s.table.Leader, last: s.own(idText(q.Self))}
	switch {
	case w.published && w.u.Server == known.server:
		known.heartbeat = w.u.Member.Heartbeat
	case was.server == known.server:
		known.heartbeat = was.heartbeat
	}
	guess := was.leader
	*was = known
	if since, _ := sinceOf(*q, ""); since > 0 && !strings.HasPrefix(q.Since, s.table.Server) {
		q.Since = "" // a full View is due
		return replica.View{}, errAgain
	}
	if guess != known.leader && !q.Beats {
		return replica.View{}, errAgain // its heartbeat was not read
	}
	return s.view(*q)
}

// begin reads what a call shows and replaces, as of one revision.
func (t *Table) begin(ctx context.Context, q replica.Query, w *write, was *known) (*snapshot, error) {
	ops := t.head(q, was.leader, false, ownKeys(idText(q.Self)))
	rest := max(0, maxOps-len(ops)) // of what it replaces, for further transactions
	ops = append(ops, w.reads()...)
	resp, err := t.client.Txn(ctx).Then(ops[:min(len(ops), maxOps)]...).Commit()
	if err != nil {
		return nil, err
	}
	s, err := t.read(resp, idText(q.Self), was, nil)
	if err != nil {
		return nil, err
	}
	if len(ops) > maxOps {
		for some := range slices.Chunk(w.reads(clientv3.WithRev(s.revision))[rest:], maxOps) {
			if resp, err = t.client.Txn(ctx).Then(some...).Commit(); err != nil {
				return nil, err
			}
			s.add(t, resp.Responses)
		}
	}
	return s, w.plan(s)
}

// Wait is that of replica.Waiter. It returns nil if the table's own record or the orders of the
// caller have changed, or the leader's record, and for the leader any member's.
func (t *Table) Wait(ctx context.Context, q replica.Query) error {
	if t.err != nil {
		return t.err
	}
	t.mu.Lock()
	leader := t.known[q.Self].leader
	t.mu.Unlock()
	since, _ := sinceOf(q, "")
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx)) // a member of etcd that is cut off says so
	defer cancel()
	table := t.client.Watch(ctx, t.prefix+keyTable, clientv3.WithPrefix(), clientv3.WithRev(since+1))
	own := t.client.Watch(ctx, t.prefix+orders+idText(q.Self), clientv3.WithRev(since+1))
	concerns := func(e *clientv3.Event) bool {
		return string(e.Kv.Key) != t.prefix+keyChanged || q.Self == leader || slices.Contains(strings.Fields(string(e.Kv.Value)), idText(leader))
	}
	for {
		var resp clientv3.WatchResponse
		var open bool
		select {
		case resp, open = <-table:
		case resp, open = <-own:
		}
		switch err := resp.Err(); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, rpctypes.ErrCompacted):
			return nil // what has changed is not known
		case err != nil || !open:
			return fmt.Errorf("watch %s: %w", t.prefix, t.explain(ctx, cmp.Or(err, errClosed)))
		case slices.ContainsFunc(resp.Events, concerns):
			return nil
		}
	}
}

var errClosed = errors.New("the client is closed")
