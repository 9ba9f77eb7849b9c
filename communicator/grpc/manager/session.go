package manager

// One session of a member: from registering to leaving. The pure functions at the end
// decide how long to wait, and what follows from an answer.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager/internal/membership"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/loglimit"
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
func (m *Member) open(s *membership.Session) membership.Transport {
	return &session{Session: s, m: m, incarnation: m.worker.Incarnation()}
}

// Join registers until the manager confirms it, or another attempt cannot help.
func (s *session) Join(ctx context.Context) error {
	retry := backoff.New()
	var limit loglimit.Limiter
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
		}
		warn(s.m.log, &limit, "registration failed, will retry", err, "worker", s.m.name, "manager", s.m.manager)
		if errors.Is(err, errLate) {
			continue // the worker is a member, so the next answer comes immediately
		}
		retry.Wait(ctx)
	}
}

// register makes one attempt to register.
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
		Settings: settingsMessage(s.m.settings.Worker),
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

// settingsMessage returns the settings of a worker as a message; nil for the default.
func settingsMessage(s orchestrator.WorkerSettings) *orchestratorv1.WorkerSettings {
	if s.Equal(orchestrator.WorkerSettings{}) {
		return nil
	}
	return &orchestratorv1.WorkerSettings{Zone: s.Zone, Labels: s.Labels, Share: int32(s.Share), MaxTasks: int32(s.MaxTasks)}
}

// workerSettings returns the settings of a message, which may be nil or invalid.
func workerSettings(m *orchestratorv1.WorkerSettings) orchestrator.WorkerSettings {
	return orchestrator.WorkerSettings{
		Zone: m.GetZone(), Labels: m.GetLabels(), Share: int(m.GetShare()), MaxTasks: int(m.GetMaxTasks()),
	}
}

// fence makes the worker refuse calls of earlier terms. It must come before the
// acknowledgement with which the worker begins to accept calls.
func (m *Member) fence(t *orchestratorv1.Term) {
	if term := (orchestrator.Term{Epoch: t.GetEpoch(), Number: t.GetNumber()}); term.Credible(m.worker.Seen()) {
		m.worker.Fence(term)
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
	var limit loglimit.Limiter
	failing := false // the last heartbeat failed
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-results:
			<-room
			if errors.Is(err, errEnded) {
				return err
			}
			failing = err != nil
			s.logHeartbeat(ctx, err, &limit)
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

// logHeartbeat logs the result of a heartbeat: an error, or the end of errors.
func (s *session) logHeartbeat(ctx context.Context, err error, limit *loglimit.Limiter) {
	switch {
	case err == nil:
		if limit.Reset() {
			s.m.log.Info("heartbeats acknowledged again", "worker", s.m.name)
		}
	case ctx.Err() == nil && status.Code(err) != codes.Canceled:
		warn(s.m.log, limit, "heartbeat not acknowledged", err, "worker", s.m.name)
	}
}

// heartbeat sends a heartbeat, and renews the worker's lease if the manager acknowledges
// it.
func (s *session) heartbeat(ctx context.Context, draining bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
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

// Errors that end a membership, or keep it from beginning.
var (
	// errEnded reports that the manager has ended the membership.
	errEnded = errors.New("manager has ended the membership")
	// errLate reports an acknowledgement that came too late to rely on.
	errLate = errors.New("answer took too long")
)

// registerResult evaluates the result of Register. mayBeMember reports whether the
// manager may have registered this process. If verdict wraps errEnded, another
// incarnation is needed. If it wraps ErrInvalid, it is final. Any other error calls
// for another attempt.
func registerResult(err error) (mayBeMember bool, verdict error) {
	if errors.Is(err, communicator.ErrPlaintext) { // no attempt can ever send anything
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, wire.Readable(err))
	}
	switch code := status.Code(err); code {
	case codes.OK:
		return true, nil
	case codes.FailedPrecondition:
		if wire.OtherReason(err, wire.ReasonMembershipOver) {
			return false, wire.Readable(err)
		}
		return false, fmt.Errorf("%w: %w", errEnded, wire.Readable(err))
	case codes.InvalidArgument:
		return false, fmt.Errorf("%w: %w", orchestrator.ErrInvalid, wire.Readable(err))
	case codes.AlreadyExists, codes.Unauthenticated, codes.PermissionDenied, codes.Unimplemented:
		return false, wire.Readable(err)
	default:
		return true, wire.Readable(err)
	}
}

// heartbeatResult evaluates the result of Heartbeat: nil, an error that wraps
// errEnded, or another error, after which the next heartbeat may succeed.
func heartbeatResult(err error) error {
	switch status.Code(err) {
	case codes.OK:
		return nil
	case codes.NotFound:
		return fmt.Errorf("%w: %w", errEnded, wire.Readable(err))
	}
	return wire.Readable(err)
}

// grants returns an error if a manager grants a shorter lease than the worker's. A
// manager that states no lease grants the requested one.
func grants(granted *durationpb.Duration, lease time.Duration) error {
	if granted != nil && granted.AsDuration() < lease {
		return fmt.Errorf("%w: manager grants a lease of %v: worker.WithLease is %v",
			orchestrator.ErrInvalid, granted.AsDuration(), lease)
	}
	return nil
}

// The heartbeats of a lease. A worker has at least a quarter of its lease to renew
// it (see worker.WithLease), and sends three heartbeats in that time. Each may take
// as long as that quarter, and the next does not wait for it. So neither a slow
// connection nor a lost heartbeat loses the lease.
const (
	leastRenewal = 4 // parts of a lease
	beatsInThat  = 3
)

func heartbeatEvery(lease time.Duration) time.Duration { return lease / leastRenewal / beatsInThat }

func heartbeatTimeout(lease time.Duration) time.Duration { return lease / leastRenewal }

// registerTimeout returns how long an attempt to register may take. The manager
// calls the worker, and writes to its store.
func registerTimeout(lease time.Duration) time.Duration {
	return max(lease/leastRenewal, probeTime+time.Second) // long enough to get the reason of a failed call
}

// warn logs a failed call: at once if its code is not that of the last one, and then once a
// minute.
func warn(log *slog.Logger, limit *loglimit.Limiter, text string, err error, attrs ...any) {
	if omitted, ok := limit.Take(time.Now(), status.Code(err).String()); ok {
		log.Warn(text, append(attrs, "err", err, loglimit.Omitted(omitted))...)
	}
}
