package etcd

// One membership, from its lease to its end: how a member joins, how it is fenced
// against earlier leaders, and how it drains.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/internal/closing"
)

// session is one membership in progress, from its lease to its end.
type session struct {
	m      *Member
	lease  *etcdLease
	id     identity
	runner *taskRunner // nil if the member takes no assignments from etcd
	// closeContents closes the watches of contents; nil without a runner.
	closeContents func()
	joined        bool // has been a member
	end           *closing.Membership

	ctx    context.Context // ends with the membership; the cause is the reason
	cancel context.CancelCauseFunc
	parts  sync.WaitGroup
}

// serve is one membership. When it returns, the membership has no task and no
// goroutine left, and no lease if etcd could be reached. serve reports whether the
// member had joined, and why the membership ended.
func (m *Member) serve(ctx, joining context.Context) (joined bool, err error) {
	if !m.unrevoked.retry(joining) {
		return false, errUnrevoked // this member's earlier lease still holds the name
	}
	limited, cancel := context.WithTimeout(joining, m.worker.Lease())
	held, err := grant(limited, m.client, m.logger, m.worker.Lease(), m.worker.Sending)
	cancel()
	if err != nil {
		return false, err
	}
	s := &session{m: m, lease: held, end: closing.NewMembership(m.worker)}
	// The membership outlives ctx until all tasks have stopped.
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.part(held.keep)
	s.part(s.end.Fence)
	if err = s.join(joining); err == nil {
		s.joined = true
		err = s.run(ctx)
	}
	m.early = s.end.Early(ctx, err)
	return s.joined, s.stop(ctx, err)
}

// part runs a part of the membership in a goroutine. An error of one part ends the
// whole membership.
func (s *session) part(f func(context.Context) error) {
	s.parts.Go(func() {
		if err := f(s.ctx); err != nil {
			s.cancel(err) // only the first cause counts
		}
	})
}

// join puts the member's key as soon as no other member has the name.
func (s *session) join(ctx context.Context) error {
	s.id = identity{
		layout: s.m.layout, name: s.m.name, incarnation: strconv.FormatUint(s.m.worker.Incarnation(), 10),
		lease: s.lease.id, cluster: s.lease.cluster,
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	a := joinAttempt{session: s}
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		admitted, err := a.try(ctx)
		if admitted || permanent(err) || isAny(err, ErrNameTaken, ErrClusterChanged, errNotOurs) {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			s.m.logger.Warn("not joined, retrying", "worker", s.m.name, "err", err)
			sleep(ctx, pause)
		}
	}
}

// value returns the value of the member's key.
func (s *session) value(draining bool) string {
	return encode(memberValue{
		Incarnation: s.id.incarnation, Lease: int64(s.id.lease), Draining: draining,
		Attributes: s.m.attributes, Cluster: s.id.cluster,
	})
}

// run serves until ctx ends, the member was drained, or the membership is lost. It
// returns the reason.
func (s *session) run(ctx context.Context) error {
	m := s.m
	m.logger.Info("joined", "worker", m.name, "incarnation", s.id.member)
	w := &writer{
		client: m.client, id: s.id, log: m.logger, attempt: s.lease.length / 5,
		signal: make(chan struct{}, 1), written: -1,
	}
	emptied := s.idle
	if !m.unassigned {
		s.work(w)
		emptied = func() <-chan struct{} { return s.runner.close(closing.ErrDraining) }
	}
	key := s.id.layout.Member(m.name)
	s.part(s.mirror(key, key+"\x00", false, s.evicted))

	drain, empty, alone, free := m.closing.Drain(), (<-chan struct{})(nil), make(chan struct{}), make(chan struct{})
	for {
		select {
		case <-drain:
			drain = nil
			s.end.Drain()
			m.logger.Info("draining", "worker", m.name)
			empty = emptied()
			s.part(func(ctx context.Context) error { return s.watchOthers(ctx, sync.OnceFunc(func() { close(alone) })) })
			s.part(func(ctx context.Context) error {
				put := clientv3.OpPut(key, s.value(true), clientv3.WithLease(s.id.lease))
				_, err := w.commit(ctx, []clientv3.Op{put})
				return err
			})
		case <-empty:
			return closing.ErrDraining
		case <-alone:
			alone = nil
			s.part(func(ctx context.Context) error {
				if s.end.Alone(ctx, m.logger, m.name) {
					close(free)
				}
				return nil
			})
		case <-free:
			return closing.ErrAlone
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// watchOthers calls alone if no other member can take tasks: the member is the only
// one, or each other one drains.
func (s *session) watchOthers(ctx context.Context, alone func()) error {
	others := &Membership{preflight{settings: s.m.settings, client: s.m.client}}
	cache := newMemberCache(others)
	return ended(others.mirror().Run(ctx, func(_ mirror.At, changes []mirror.Change) {
		cache.apply(changes)
		takes := func(m MemberState) bool { return m.Name != s.m.name && !m.Draining }
		if !slices.ContainsFunc(cache.list(), takes) {
			alone()
		}
	}))
}

// work starts to watch the assignments and to carry them out.
func (s *session) work(w *writer) {
	m := s.m
	contents := newContents(s.ctx, m.client, s.id, m.logger, m.worker.Update, s.lease.length)
	s.closeContents = contents.close
	s.runner = &taskRunner{
		id: s.id, worker: m.worker, writer: w, log: m.logger, ctx: s.ctx,
		reader: contents,
		tasks:  make(map[string]*runningTask), empty: make(chan struct{}),
	}
	w.answer, w.load = s.runner.answered, s.runner.load
	s.part(w.run)
	from, end := mirror.Prefix(s.id.layout.AssignedOf(m.name))
	s.part(s.mirror(from, end, true, s.runner.watched))
}

// mirror returns a part that follows the range of keys [from, end).
func (s *session) mirror(from, end string, values bool, apply func(mirror.At, []mirror.Change)) func(context.Context) error {
	m := mirror.New(s.m.client, mirror.Options{
		From: from, End: end, Logger: s.m.logger,
		Keep: func(string) bool { return values },
	})
	return func(ctx context.Context) error { return ended(m.Run(ctx, apply)) }
}

// evicted ends the membership if the member's key was deleted or replaced. The
// leader then believes that the worker has left.
func (s *session) evicted(_ mirror.At, changes []mirror.Change) {
	for _, c := range changes {
		if c.New == nil || c.New.Create != s.id.member {
			s.cancel(fmt.Errorf("%w: member's key was deleted", errEvicted))
		}
	}
}

// stop ends the membership. It stops all tasks, under the lease for as long as the
// lease lasts, and then revokes the lease. It returns the cause, joined with an
// error that keeps the worker from joining again.
func (s *session) stop(ctx context.Context, cause error) error {
	m := s.m
	// A worker that will not rejoin is closed; another is emptied.
	last := ctx.Err() != nil || isAny(cause, closing.ErrDraining, ErrNameTaken)
	if last {
		// If the lease is lost during Close, tell the worker, which then has less
		// time to stop its tasks.
		defer context.AfterFunc(s.ctx, func() { m.worker.EndLease(context.Cause(s.ctx)) })()
		m.stopAll(ctx)
	} else {
		m.worker.EndLease(cause)
	}
	s.cancel(cause)
	s.parts.Wait()
	if s.runner != nil {
		s.closeContents() // first: a goroutine that opens a watch waits only for etcd or this call
		s.runner.started.Wait()
	}
	if !last {
		if err := m.worker.Rejoin(ctx); err != nil {
			cause = errors.Join(cause, err)
			m.stopAll(ctx)
		}
	}
	m.unrevoked.end(ctx, s.lease)
	if s.joined {
		m.logger.Info("left", "worker", m.name, "incarnation", s.id.member, "reason", cause)
	}
	return cause
}

// errUnrevoked reports that an earlier lease of the member has not been revoked yet.
var errUnrevoked = errors.New("earlier lease not revoked yet")

// joinAttempt is an attempt to join under a name, which may be taken.
type joinAttempt struct {
	*session
	since time.Time     // when the name was first found taken; zero: never
	limit time.Duration // how long after since a dead member can hold the name
	term  uint64        // the raft term of etcd in which limit is valid
}

// expiryDelay bounds how late etcd deletes an expired lease. It checks every half
// second, and takes longer with many leases.
const expiryDelay = 2 * time.Second

// try puts the member's key, or waits for a limited time for the present key to go.
// It reports whether the member was admitted. If it returns false and no error, the
// caller calls try again.
func (a *joinAttempt) try(ctx context.Context) (admitted bool, err error) {
	fenced, err := a.fence(ctx)
	if err != nil {
		return false, fmt.Errorf("join: %w", err)
	}
	key := a.id.layout.Member(a.id.name)
	resp, err := a.m.client.Txn(ctx).
		If(append(fenced, absent(key), present(a.id.layout.Format()))...).
		Then(clientv3.OpPut(key, a.value(false), clientv3.WithLease(a.id.lease))).
		Else(clientv3.OpGet(key), clientv3.OpGet(a.id.layout.Format(), clientv3.WithKeysOnly())).
		Commit()
	if err != nil {
		return false, fmt.Errorf("join: %w", err)
	}
	if resp.Header.ClusterId != a.id.cluster {
		return false, ErrClusterChanged
	}
	if resp.Succeeded {
		a.id.member = resp.Header.Revision
		return true, nil
	}
	if first(resp.Responses[1]) == nil {
		return false, errNotOurs
	}
	kv := first(resp.Responses[0])
	if kv == nil && len(fenced) > 0 {
		return false, nil // the leader has changed since fence
	}
	if kv == nil {
		return false, errShape
	}
	if clientv3.LeaseID(kv.Lease) == a.id.lease {
		a.id.member = kv.CreateRevision // put by an earlier attempt whose answer was lost
		return true, nil
	}
	return false, a.wait(ctx, kv, resp.Header)
}

// wait waits until the name is free, or until the member that has the name must be
// alive. It returns ErrNameTaken in that case.
func (a *joinAttempt) wait(ctx context.Context, taken *mvccpb.KeyValue, as *etcdserverpb.ResponseHeader) error {
	// A new leader of etcd, such as after a restart, extends every lease by its full
	// length, including those of dead members.
	if a.since.IsZero() || a.term != as.RaftTerm {
		ttl, err := a.m.client.TimeToLive(ctx, clientv3.LeaseID(taken.Lease))
		if err != nil {
			return fmt.Errorf("read lease of the name's holder: %w", err)
		}
		// Use the full TTL, because the lease may have been renewed.
		a.limit = time.Duration(max(ttl.GrantedTTL, 0))*time.Second + expiryDelay
		a.since, a.term = time.Now(), as.RaftTerm
		a.m.logger.Info("name taken, waiting for the lease to end", "worker", a.id.name, "limit", a.limit)
	}
	left := a.limit - time.Since(a.since)
	if left <= 0 {
		return fmt.Errorf("%w: worker %s has been a member since revision %d", ErrNameTaken, a.id.name, taken.CreateRevision)
	}
	limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), left)
	defer cancel()
	gone := a.m.client.Watch(limited, string(taken.Key), clientv3.WithRev(as.Revision+1), clientv3.WithFilterPut())
	for resp := range gone {
		if err := resp.Err(); err != nil {
			return fmt.Errorf("wait for the name: %w", err)
		}
		if len(resp.Events) > 0 {
			return nil
		}
	}
	return nil
}

// leaderGuard is the current leader as of a revision: an epoch above all earlier and
// below all later ones, and a comparison that holds until the leader changes.
type leaderGuard struct {
	epoch     uint64
	unchanged clientv3.Cmp
}

// currentLeader reads the current leader. Without a leader, the revision serves as
// the epoch: earlier leaders were elected before it, and later ones will be elected
// after it.
func (a *joinAttempt) currentLeader(ctx context.Context) (leaderGuard, error) {
	prefix := a.id.layout.Leaders()
	resp, err := a.m.client.Get(ctx, prefix, clientv3.WithFirstCreate()...)
	switch {
	case err != nil:
		return leaderGuard{}, fmt.Errorf("read leader: %w", err)
	case resp.Header.ClusterId != a.id.cluster:
		return leaderGuard{}, ErrClusterChanged
	case len(resp.Kvs) == 0:
		none := clientv3.Compare(clientv3.CreateRevision(prefix), "=", 0).WithPrefix()
		return leaderGuard{uint64(resp.Header.Revision), none}, nil
	}
	leader := resp.Kvs[0]
	still := clientv3.Compare(clientv3.CreateRevision(string(leader.Key)), "=", leader.CreateRevision)
	return leaderGuard{uint64(leader.CreateRevision), still}, nil
}

// fence makes the worker refuse calls of earlier leaders. It returns comparisons
// that the joining transaction must include. It returns none if assignments come
// from etcd.
func (a *joinAttempt) fence(ctx context.Context) ([]clientv3.Cmp, error) {
	if !a.m.unassigned {
		return nil, nil
	}
	r, err := a.currentLeader(ctx)
	if err != nil {
		return nil, err
	}
	a.m.worker.Fence(orchestrator.Term{Epoch: r.epoch})
	return []clientv3.Cmp{r.unchanged}, nil
}

// idle returns a channel that is closed once all tasks of the worker have moved.
func (s *session) idle() <-chan struct{} {
	empty := make(chan struct{})
	s.part(func(ctx context.Context) error {
		if s.end.Emptied(ctx) {
			close(empty)
		}
		return nil
	})
	return empty
}
