package etcd

// One membership, from its lease to its end: how a member joins and how it drains.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/membership"
)

// session is one membership in progress, from its lease to its end.
type session struct {
	*membership.Session
	m     *Member
	lease *etcdLease
	id    identity
	// Set by Join:
	writer   *writer
	runner   *taskRunner
	contents *contents
}

// open gets the lease of a session and keeps it alive.
func (m *Member) open(ctx context.Context, s *membership.Session) (membership.Transport, error) {
	// Check the prefix every time, because another cluster may have replaced the last.
	if err := m.awaitContact(ctx); err != nil {
		return nil, err
	}
	if !m.unrevoked.retry(ctx) {
		return nil, errUnrevoked // this member's earlier lease still holds the name
	}
	ctx, cancel := context.WithTimeout(ctx, m.worker.Lease())
	defer cancel()
	held, err := grant(ctx, m.client, m.logger, m.worker.Lease(), m.worker.Sending)
	if err != nil {
		return nil, err
	}
	s.Go(held.keep)
	return &session{Session: s, m: m, lease: held, id: identity{
		layout: m.layout, name: m.name, incarnation: strconv.FormatUint(m.worker.Incarnation(), 10),
		lease: held.id, cluster: held.cluster,
	}}, nil
}

// Join puts the member's key as soon as no other member has the name.
func (s *session) Join(ctx context.Context) error {
	a := joinAttempt{session: s}
	retry := backoff.New()
	for {
		admitted, err := a.try(ctx)
		switch {
		case admitted:
			s.joined()
			return nil
		case permanent(err), isAny(err, ErrNameTaken, ErrClusterChanged, errNotOurs):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			s.m.logger.Warn("not joined, retrying", "worker", s.m.name, "err", err)
			retry.Wait(ctx)
		}
	}
}

// joined prepares what Keep and Announce use.
func (s *session) joined() {
	m := s.m
	m.ever = true
	m.logger.Info("joined", "worker", m.name, "incarnation", s.id.member)
	s.writer = &writer{
		client: m.client, id: s.id, log: m.logger, attempt: s.lease.length / 5,
		signal: make(chan struct{}, 1), written: -1,
	}
	s.contents = newContents(s.Context(), m.client, s.id, m.logger, m.worker.Update, s.lease.length)
	s.runner = &taskRunner{
		id: s.id, worker: m.worker, writer: s.writer, log: m.logger, ctx: s.Context(),
		reader: s.contents,
		tasks:  make(map[string]*runningTask), empty: make(chan struct{}),
	}
	s.writer.answer, s.writer.load = s.runner.answered, s.runner.load
}

// value returns the value of the member's key.
func (s *session) value(draining bool) string {
	return encode(memberValue{
		Incarnation: s.id.incarnation, Lease: int64(s.id.lease), Draining: draining,
		Attributes: s.m.attributes, Cluster: s.id.cluster, Settings: settingsValue(s.m.placement),
	})
}

// Keep watches the member's key, and carries out the assignments.
func (s *session) Keep(ctx context.Context) error {
	parts, ctx := errgroup.WithContext(ctx)
	key := s.id.layout.Member(s.m.name)
	parts.Go(func() error { return s.mirror(ctx, key, key+"\x00", false, s.evicted) })
	parts.Go(func() error { return s.writer.run(ctx) })
	from, end := mirror.Prefix(s.id.layout.AssignedOf(s.m.name))
	parts.Go(func() error { return s.mirror(ctx, from, end, true, s.runner.watched) })
	err := parts.Wait()
	s.End(err)         // for what the runner has started
	s.contents.close() // first: a goroutine that opens a watch waits only for etcd or this call
	s.runner.started.Wait()
	return err
}

// Announce marks the member's key, and waits until all tasks have moved and their
// claims are released.
func (s *session) Announce(ctx context.Context) error {
	s.Go(s.watchOthers)
	s.Go(func(ctx context.Context) error {
		put := clientv3.OpPut(s.id.layout.Member(s.m.name), s.value(true), clientv3.WithLease(s.id.lease))
		_, err := s.writer.commit(ctx, []clientv3.Op{put})
		return err
	})
	select {
	case <-s.runner.close(membership.ErrDraining):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// watchOthers calls Alone if no other member can take tasks: the member is the only
// one, or each other one drains.
func (s *session) watchOthers(ctx context.Context) error {
	others := &Membership{preflight{settings: s.m.settings, client: s.m.client}}
	cache := newMemberCache(others)
	return ended(others.mirror().Run(ctx, func(_ mirror.At, changes []mirror.Change) {
		cache.apply(changes)
		takes := func(m MemberState) bool { return m.Name != s.m.name && !m.Draining }
		if !slices.ContainsFunc(cache.list(), takes) {
			s.Alone()
		}
	}))
}

// mirror follows the range of keys [from, end) until ctx ends.
func (s *session) mirror(ctx context.Context, from, end string, values bool, apply func(mirror.At, []mirror.Change)) error {
	m := mirror.New(s.m.client, mirror.Options{
		From: from, End: end, Logger: s.m.logger,
		Keep: func(string) bool { return values },
	})
	return ended(m.Run(ctx, apply))
}

// evicted ends the membership if the member's key was deleted or replaced. The
// leader then believes that the worker has left.
func (s *session) evicted(_ mirror.At, changes []mirror.Change) {
	for _, c := range changes {
		if c.New == nil || c.New.Create != s.id.member {
			s.End(fmt.Errorf("%w: member's key was deleted", errEvicted))
		}
	}
}

// Leave revokes the lease, which deletes every key of the membership.
func (s *session) Leave(ctx context.Context, reason error) {
	s.m.unrevoked.end(ctx, s.lease)
	if s.id.member != 0 {
		s.m.logger.Info("left", "worker", s.m.name, "incarnation", s.id.member, "reason", reason)
	}
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
	key := a.id.layout.Member(a.id.name)
	resp, err := a.m.client.Txn(ctx).
		If(absent(key), present(a.id.layout.Format())).
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
