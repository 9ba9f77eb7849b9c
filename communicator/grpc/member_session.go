package grpc

// One membership: from registering to leaving.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/closing"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// session is one membership under way.
type session struct {
	m           *Member
	incarnation uint64
	perhaps     bool // the manager may have it as a member
	joined      bool // it has said so
	end         *closing.Membership
	alone       func() // called when the manager says that no other member can take tasks

	ctx    context.Context // the membership's, with what ended it as its cause
	cancel context.CancelCauseFunc
	parts  sync.WaitGroup
}

// stay is one membership. When it returns, nothing of it is left: no task, no
// goroutine, and no lease if the manager could be told. It reports whether the
// worker had registered, and why the membership ended.
func (m *Member) stay(ctx, joining context.Context) (registered bool, err error) {
	s := &session{m: m, incarnation: m.worker.Incarnation(), end: closing.NewMembership(m.worker)}
	// The membership outlives ctx until everything has stopped.
	s.ctx, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	s.part(s.end.Fence)
	if err = s.register(joining); err == nil {
		s.joined = true
		err = s.run(ctx)
	}
	m.early = s.end.Early(ctx, err)
	return s.joined, s.stop(ctx, err)
}

// part runs a part of the membership, which ends as a whole when one fails.
func (s *session) part(f func(context.Context) error) {
	s.parts.Go(func() {
		if err := f(s.ctx); err != nil {
			s.cancel(err) // only the first counts
		}
	})
}

// register asks to be a member until the manager has said so, or that there is
// no use in asking.
func (s *session) register(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })()
	var said novelties
	for failures := 1; ; failures++ {
		s.m.payDebt(ctx)
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
			s.m.log.Warn("not registered, to be tried again", "worker", s.m.name, "manager", s.m.manager, "err", err)
		}
		if errors.Is(err, errLate) {
			continue // it is a member: to ask again is answered at once
		}
		pauseFor(ctx, pauseAfter(failures, rand.Float64()))
	}
}

func (s *session) tryRegister(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	lease := s.m.worker.Lease()
	ctx, cancel := context.WithTimeout(ctx, registerPatience(lease))
	defer cancel()
	sent := time.Now()
	acknowledged := s.m.worker.Sending()
	resp, err := s.m.client.Register(ctx, &orchestratorv1.RegisterRequest{
		Worker: []byte(s.m.name), Incarnation: s.incarnation, Address: s.m.address, Lease: durationpb.New(lease),
	})
	perhaps, err := judgeRegister(err)
	s.perhaps = s.perhaps || perhaps
	if err != nil {
		return fmt.Errorf("register: %w", err)
	}
	if err := grants(resp.GetLease(), lease); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	s.m.fence(resp.GetTerm())
	// From the first acknowledgement on the clock runs: one that leaves no time to
	// renew the lease would only lose it.
	if took := time.Since(sent); took > heartbeatPatience(lease) {
		return fmt.Errorf("register: %w: %v", errLate, took)
	}
	acknowledged()
	return nil
}

// fence has the worker refuse what is older than a term. It comes before the
// acknowledgement with which the worker begins to accept anything.
func (m *Member) fence(t *orchestratorv1.Term) {
	if t != nil {
		m.worker.Fence(orchestrator.Term{Epoch: t.GetEpoch(), Number: t.GetNumber()})
	}
}

// run keeps the membership until ctx ends, the member was drained, or the
// membership is lost. It returns which.
func (s *session) run(ctx context.Context) error {
	drain, empty, alone, free := s.m.closing.Drain(), make(chan struct{}), make(chan struct{}), make(chan struct{})
	s.alone = sync.OnceFunc(func() { close(alone) })
	s.part(s.beat)
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

// beat sends heartbeats until ctx ends, or the manager says that it knows of no
// such member.
func (s *session) beat(ctx context.Context) error {
	lease := s.m.worker.Lease()
	ticker := time.NewTicker(heartbeatEvery(lease))
	defer ticker.Stop()
	var flying sync.WaitGroup
	defer flying.Wait()
	ctx, over := context.WithCancel(ctx) // what is on its way ends with beat
	defer over()
	room := make(chan struct{}, beatsInThat)
	results := make(chan error, beatsInThat)
	drain, draining := s.m.closing.Drain(), false
	// What says that it does not drain ends when it does, so as not to come after
	// what says that it does: the manager would give it tasks again.
	from, overtaken := context.WithCancel(ctx)
	defer overtaken()
	var said novelties
	failing := false // the last answer was none
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
					s.m.log.Info("heartbeats are acknowledged again", "worker", s.m.name)
				}
				continue
			}
			failing = true
			if ctx.Err() == nil && status.Code(err) != codes.Canceled && said.news(err) {
				s.m.log.Warn("a heartbeat was not acknowledged", "worker", s.m.name, "err", err)
			}
			continue
		case <-drain:
			overtaken()
			drain, draining, from = nil, true, ctx
		case <-ticker.C:
			s.m.settings.credentials.watch(s.m.log)
			if failing { // a manager that is back is not to be found out by chance
				s.m.conn.ResetConnectBackoff()
			}
		}
		select {
		case room <- struct{}{}:
			from, draining := from, draining // as they are now
			flying.Go(func() { results <- s.beatOnce(from, draining, heartbeatPatience(lease)) })
		default: // as many as there may be are on their way
		}
	}
}

func (s *session) beatOnce(ctx context.Context, draining bool, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	acknowledged := s.m.worker.Sending()
	resp, err := s.m.client.Heartbeat(ctx, &orchestratorv1.HeartbeatRequest{
		Worker: []byte(s.m.name), Incarnation: s.incarnation, Draining: draining,
	})
	if err = judgeHeartbeat(err); err == nil {
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

// stop ends the membership: everything stops, under the lease for as long as
// that holds; then it is given back. It returns the cause, and what keeps the
// worker from registering again.
func (s *session) stop(ctx context.Context, cause error) error {
	m := s.m
	// A worker that will not come back is closed, one that will is emptied.
	last := ctx.Err() != nil || isAny(cause, closing.ErrDraining, orchestrator.ErrInvalid)
	if last {
		// What still stops may have less time than it thinks: the lease may go.
		unwatch := context.AfterFunc(s.ctx, func() { m.worker.GiveUp(context.Cause(s.ctx)) })
		m.halt(ctx)
		unwatch()
	} else {
		m.worker.GiveUp(cause)
	}
	s.cancel(cause)
	s.parts.Wait() // what has asked for the lease is at rest
	if !last {
		if err := m.worker.Rejoin(ctx); err != nil {
			cause = errors.Join(cause, err)
			m.halt(ctx)
		}
	}
	if s.perhaps {
		m.owed = s.incarnation
		m.payDebt(context.WithoutCancel(ctx))
	}
	if s.joined {
		m.log.Info("left", "worker", m.name, "incarnation", s.incarnation, "reason", cause)
	}
	return cause
}

// payDebt tells the manager that an incarnation has left, in which nothing runs
// any more. Where that fails its lease runs out, and whoever comes under this
// name waits for it.
func (m *Member) payDebt(ctx context.Context) {
	if m.owed == 0 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, min(m.worker.Lease(), 2*time.Second))
	defer cancel()
	_, err := m.client.Leave(ctx, &orchestratorv1.LeaveRequest{Worker: []byte(m.name), Incarnation: m.owed})
	if err != nil {
		m.log.Debug("not told that it has left", "worker", m.name, "incarnation", m.owed, "err", readable(err))
		return
	}
	m.owed = 0
}
