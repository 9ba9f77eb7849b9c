package manager

// One session of a member: from registering to leaving.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/membership"
)

// session is one membership of a worker.
type session struct {
	*membership.Session
	m           *Member
	incarnation uint64
	mayBeMember bool // the manager may have registered it
	joined      bool // the manager has confirmed that
}

// open begins a session.
func (m *Member) open(_ context.Context, s *membership.Session) (membership.Transport, error) {
	return &session{Session: s, m: m, incarnation: m.worker.Incarnation()}, nil
}

// Join registers until the manager confirms it, or another attempt cannot help.
func (s *session) Join(ctx context.Context) error {
	retry := backoff.New()
	var said seenErrors
	for {
		s.m.reportLeft(ctx)
		err := s.register(ctx)
		switch {
		case err == nil:
			s.joined = true
			s.m.log.Info("registered", "worker", s.m.name, "incarnation", s.incarnation, "manager", s.m.manager)
			return nil
		case errors.Is(err, errEnded), errors.Is(err, orchestrator.ErrInvalid):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case said.news(err):
			s.m.log.Warn("registration failed, will retry", "worker", s.m.name, "manager", s.m.manager, "err", err)
		}
		if errors.Is(err, errLate) {
			continue // the worker is a member, so the next answer comes immediately
		}
		retry.Wait(ctx)
	}
}

func (s *session) register(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	lease := s.m.worker.Lease()
	ctx, cancel := context.WithTimeout(ctx, registerTimeout(lease))
	defer cancel()
	sent := time.Now()
	acknowledged := s.m.worker.Sending()
	resp, err := s.m.client.Register(ctx, &orchestratorv1.RegisterRequest{
		Worker: []byte(s.m.name), Incarnation: s.incarnation, Address: s.m.address, Lease: durationpb.New(lease),
	})
	mayBeMember, err := registerResult(err)
	s.mayBeMember = s.mayBeMember || mayBeMember
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := grants(resp.GetLease(), lease); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	s.m.fence(resp.GetTerm())
	// The first acknowledgement starts the lease. If the answer took so long that no
	// time is left to renew the lease, the worker would only lose it.
	if took := time.Since(sent); took > heartbeatTimeout(lease) {
		return fmt.Errorf("register: %w: %v", errLate, took)
	}
	acknowledged()
	return nil
}

// fence makes the worker refuse calls of earlier terms. It must come before the
// acknowledgement with which the worker begins to accept calls.
func (m *Member) fence(t *orchestratorv1.Term) {
	if t != nil {
		m.worker.Fence(orchestrator.Term{Epoch: t.GetEpoch(), Number: t.GetNumber()})
	}
}

// Keep sends heartbeats until ctx ends, or the manager answers that the worker is not
// a member. Once the worker drains, the heartbeats say so.
func (s *session) Keep(ctx context.Context) error {
	lease := s.m.worker.Lease()
	ticker := time.NewTicker(heartbeatEvery(lease))
	defer ticker.Stop()
	var flying sync.WaitGroup
	defer flying.Wait()
	ctx, over := context.WithCancel(ctx) // calls under way end with Keep
	defer over()
	room := make(chan struct{}, beatsInThat)
	results := make(chan error, beatsInThat)
	drain, draining := s.Draining(), false
	// When draining begins, earlier heartbeats are cancelled. If one without draining
	// arrived late, the manager would give the worker tasks again.
	from, overtaken := context.WithCancel(ctx)
	defer overtaken()
	var said seenErrors
	failing := false // the last heartbeat failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-results:
			<-room
			switch {
			case errors.Is(err, errEnded):
				return err
			case err == nil:
				failing = false
				if said.clear() {
					s.m.log.Info("heartbeats acknowledged again", "worker", s.m.name)
				}
				continue
			}
			failing = true
			if ctx.Err() == nil && status.Code(err) != codes.Canceled && said.news(err) {
				s.m.log.Warn("heartbeat not acknowledged", "worker", s.m.name, "err", err)
			}
			continue
		case <-drain:
			overtaken()
			drain, draining, from = nil, true, ctx
		case <-ticker.C:
			s.m.settings.Credentials.Watch(s.m.log)
			if failing { // the manager may be back: do not wait for the backoff
				s.m.conn.ResetConnectBackoff()
			}
		}
		select {
		case room <- struct{}{}:
			from, draining := from, draining // the current values
			flying.Go(func() { results <- s.heartbeat(from, draining, heartbeatTimeout(lease)) })
		default: // beatsInThat heartbeats are under way
		}
	}
}

func (s *session) heartbeat(ctx context.Context, draining bool, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	acknowledged := s.m.worker.Sending()
	resp, err := s.m.client.Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{
		Worker: []byte(s.m.name), Incarnation: s.incarnation, Draining: draining,
	})
	if err = heartbeatResult(err); err == nil {
		err = grants(resp.GetLease(), s.m.worker.Lease())
	}
	if err != nil {
		return fmt.Errorf("heartbeat: %w", err)
	}
	s.m.fence(resp.GetTerm())
	acknowledged()
	if draining && resp.GetAlone() {
		s.Alone()
	}
	return nil
}

// Announce waits until all tasks have moved. The heartbeats announce that the worker
// drains.
func (s *session) Announce(ctx context.Context) error { return s.Emptied(ctx) }

// Leave tells the manager that the worker has left, if it may be a member.
func (s *session) Leave(ctx context.Context, reason error) {
	if s.mayBeMember {
		s.m.leftIncarnation = s.incarnation
		s.m.reportLeft(context.WithoutCancel(ctx))
	}
	if s.joined {
		s.m.log.Info("left manager", "worker", s.m.name, "incarnation", s.incarnation, "reason", reason)
	}
}

// reportLeft tells the manager that an incarnation without tasks has left. If that
// fails, its lease must expire, and the next incarnation under this name waits for
// that.
func (m *Member) reportLeft(ctx context.Context) {
	if m.leftIncarnation == 0 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(m.worker.Lease(), 2*time.Second))
	defer cancel()
	_, err := m.client.Leave(ctx, &orchestratorv1.LeaveRequest{Worker: []byte(m.name), Incarnation: m.leftIncarnation})
	if err != nil {
		m.log.Debug("manager not told of leaving", "worker", m.name, "incarnation", m.leftIncarnation, "err", wire.Readable(err))
		return
	}
	m.leftIncarnation = 0
}
