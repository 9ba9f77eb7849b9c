package manager

// One session of a member: from registering to leaving.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/closing"
)

// session is one membership of a worker.
type session struct {
	m           *Member
	incarnation uint64
	mayBeMember bool // the manager may have registered it
	joined      bool // the manager has confirmed that
	end         *closing.Membership
	alone       func() // called when the manager says that no other member can take tasks

	ctx    context.Context // of the membership; its cause is why the membership ended
	cancel context.CancelCauseFunc
	parts  sync.WaitGroup
}

// serve runs one session. When it returns, nothing of the session is left: no task,
// no goroutine, and no lease if the manager could be reached. It reports whether the
// worker had registered, and why the session ended.
func (m *Member) serve(ctx, joining context.Context) (registered bool, err error) {
	s := &session{m: m, incarnation: m.worker.Incarnation(), end: closing.NewMembership(m.worker)}
	// The session outlives ctx until everything has stopped.
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.part(s.end.Fence)
	if err = s.register(joining); err == nil {
		s.joined = true
		err = s.run(ctx)
	}
	m.early = s.end.Early(ctx, err)
	return s.joined, s.stop(ctx, err)
}

// part runs a part of the session in a goroutine. If one part fails, the session
// ends.
func (s *session) part(f func(context.Context) error) {
	s.parts.Go(func() {
		if err := f(s.ctx); err != nil {
			s.cancel(err) // only the first error counts
		}
	})
}

// register tries to register until the manager confirms it, or another attempt
// cannot help.
func (s *session) register(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	var said seenErrors
	for failures := 1; ; failures++ {
		s.m.reportLeft(ctx)
		err := s.tryRegister(ctx)
		switch {
		case err == nil:
			s.m.log.Info("registered", "worker", s.m.name, "incarnation", s.incarnation, "manager", s.m.manager)
			return nil
		case isAny(err, errEnded, orchestrator.ErrInvalid):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case said.news(err):
			s.m.log.Warn("registration failed, will retry", "worker", s.m.name, "manager", s.m.manager, "err", err)
		}
		if errors.Is(err, errLate) {
			continue // the worker is a member, so the next answer comes immediately
		}
		pauseFor(ctx, pauseAfter(failures, rand.Float64()))
	}
}

func (s *session) tryRegister(ctx context.Context) error {
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

// run keeps the membership until ctx ends, the member is drained, or the membership
// is lost. It returns the reason.
func (s *session) run(ctx context.Context) error {
	drain, empty, alone, free := s.m.closing.Drain(), make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.alone = sync.OnceFunc(func() { close(alone) })
	s.part(s.heartbeats)
	for {
		select {
		case <-drain:
			drain = nil
			s.end.Drain()
			s.m.log.Info("draining", "worker", s.m.name)
			s.part(func(ctx context.Context) error {
				if s.end.Emptied(ctx) {
					close(empty)
				}
				return nil
			})
		case <-empty:
			return closing.ErrDraining
		case <-alone:
			alone = nil
			s.part(func(ctx context.Context) error {
				if s.end.Alone(ctx, s.m.log, s.m.name) {
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

// heartbeats sends heartbeats until ctx ends, or the manager answers that the worker is
// not a member.
func (s *session) heartbeats(ctx context.Context) error {
	lease := s.m.worker.Lease()
	ticker := time.NewTicker(heartbeatEvery(lease))
	defer ticker.Stop()
	var flying sync.WaitGroup
	defer flying.Wait()
	ctx, over := context.WithCancel(ctx) // calls under way end with heartbeats
	defer over()
	room := make(chan struct{}, beatsInThat)
	results := make(chan error, beatsInThat)
	drain, draining := s.m.closing.Drain(), false
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
		s.alone()
	}
	return nil
}

// stop ends the session. It stops all tasks, under the lease as long as that holds,
// and then leaves. It returns the cause, joined with an error that prevents the
// worker from registering again.
func (s *session) stop(ctx context.Context, cause error) error {
	m := s.m
	// If the worker will not register again, close it; otherwise only stop its tasks.
	last := ctx.Err() != nil || isAny(cause, closing.ErrDraining, orchestrator.ErrInvalid)
	if last {
		// If the lease is lost meanwhile, the tasks have less time to stop.
		unwatch := context.AfterFunc(s.ctx, func() { m.worker.EndLease(context.Cause(s.ctx)) })
		m.halt(ctx)
		unwatch()
	} else {
		m.worker.EndLease(cause)
	}
	s.cancel(cause)
	s.parts.Wait() // no call for the lease is under way
	if !last {
		if err := m.worker.Rejoin(ctx); err != nil {
			cause = errors.Join(cause, err)
			m.halt(ctx)
		}
	}
	if s.mayBeMember {
		m.leftIncarnation = s.incarnation
		m.reportLeft(context.WithoutCancel(ctx))
	}
	if s.joined {
		m.log.Info("left manager", "worker", m.name, "incarnation", s.incarnation, "reason", cause)
	}
	return cause
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
