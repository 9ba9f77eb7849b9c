package manager

// The options of New and NewMember.

import (
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager/internal/membership"
)

// Option is for [New]. Every grpc.Option is one.
type Option interface {
	ApplyManager(*option.Manager)
}

type optionFunc func(*option.Manager)

func (f optionFunc) ApplyManager(s *option.Manager) { f(s) }

// WithInterval sets the time between two terms if nothing happens. After a change, a
// term runs at once, or when the one under way has ended. The default is one second.
// It must be positive, and at most an hour.
//
// A term ends when its calls have been answered. A task that does not stop when told
// to prolongs one term by up to the timeout of a call, ten seconds by default, and
// no later term. Everything put, deleted or drained in the meantime, on other
// workers too, waits for the next term. If that is too long, give [WithOrchestrator]
// a shorter orchestrator.WithCommunicatorTimeout.
//
// The interval is also how often workers are called, which finds unreachable ones
// (see [WithUnreachable]) and gives running tasks their new contents.
func WithInterval(every time.Duration) Option {
	return optionFunc(func(s *option.Manager) {
		if every <= 0 || every > time.Hour {
			s.Invalid("WithInterval(%v): must be above 0 and at most 1h", every)
		}
		s.Interval = every
	})
}

// WithOrchestrator sets options of the manager's orchestrator. The manager itself
// sets the epoch, which is kept in the store, and the grace period, which is
// [orchestrator.HoldUntilRemoved]; these two options are ignored here. The logger is
// the manager's unless one is given here. WithOrchestrator may be used more than
// once. The default is no option.
func WithOrchestrator(opts ...orchestrator.Option) Option {
	return optionFunc(func(s *option.Manager) { s.Orchestrator = append(s.Orchestrator, opts...) })
}

// WithLeases sets the shortest and the longest lease that a worker may ask for. A
// worker that asks for any other is refused. The default is one second to one minute;
// 0 < shortest <= longest <= 24h.
//
// After a worker has crashed, its tasks are started elsewhere when its lease
// expires. After a crash of the manager, its first term may wait as long for a
// worker that does not come back. The package documentation states how long a
// manager may be away unnoticed by its workers.
func WithLeases(shortest, longest time.Duration) Option {
	return optionFunc(func(s *option.Manager) {
		if shortest <= 0 || longest < shortest || longest > 24*time.Hour {
			s.Invalid("WithLeases(%v, %v): must be 0 < shortest <= longest <= 24h", shortest, longest)
		}
		s.LeaseMin, s.LeaseMax = shortest, longest
	})
}

// WithUnreachable sets how long calls to a worker may fail, from the first failure
// since its last answer, until its heartbeats are no longer acknowledged. Its lease
// then expires, and its tasks go to workers that can be called. A worker that does
// not stop tasks that it was not given counts as one that cannot be called. The
// default is 30 seconds. It must be positive, and at most 24h.
func WithUnreachable(d time.Duration) Option {
	return optionFunc(func(s *option.Manager) {
		if d <= 0 || d > 24*time.Hour {
			s.Invalid("WithUnreachable(%v): must be above 0 and at most 24h", d)
		}
		s.Unreachable = d
	})
}

func newManagerSettings(store Store, opts []Option) (option.Manager, error) {
	s := option.Manager{
		Settings: peer.Defaults(),
		Rules:    state.Rules{LeaseMin: time.Second, LeaseMax: time.Minute, Unreachable: 30 * time.Second},
		Interval: time.Second, Probing: probeTime,
	}
	option.Apply(&s.Settings, opts, func(o Option) { o.ApplyManager(&s) })
	s.Identify(identity.Principal{Role: identity.RoleManager})
	if peer.Absent(store) {
		s.Invalid("the Store is nil")
	}
	if err := orchestrator.CheckOptions(s.Orchestrator...); err != nil {
		s.Reject(fmt.Errorf("WithOrchestrator: %w", err))
	}
	if err := s.Err(); err != nil {
		return s, fmt.Errorf("new manager: %w", err)
	}
	return s, nil
}

// MemberOption is for [NewMember]. Every grpc.Option is one.
type MemberOption interface {
	ApplyMember(*option.Member)
}

type memberOptionFunc func(*option.Member)

func (f memberOptionFunc) ApplyMember(s *option.Member) { f(s) }

// WithAdvertise sets the address, as host:port, at which the manager calls the
// worker. It is needed if that is not the listener's address, because the worker
// listens on every address or is behind an address translation.
//
// The default is the listener's address.
func WithAdvertise(address string) MemberOption {
	return memberOptionFunc(func(s *option.Member) {
		if err := identity.CheckAddress(address); err != nil {
			s.Reject(fmt.Errorf("WithAdvertise: %w", err))
		}
		s.Advertise = address
	})
}

// WithDrain sets how long a member drains when the context of [Member.Run] has ended. Then the
// tasks that have not moved are stopped. The default is 20 s. 0 stops them at once. It must not be
// negative.
func WithDrain(d time.Duration) MemberOption {
	return memberOptionFunc(func(s *option.Member) {
		if s.Drain = d; d < 0 {
			s.Invalid("WithDrain(%v): must not be negative", d)
		}
	})
}

// WithSettings sets the zone, the labels, the share and the limit of the worker, with which
// the orchestrator of the manager places tasks. To change them, make another Member: those
// of the last registration count. The default is no labels, the zone with the empty name, a
// share of 1 and no limit.
func WithSettings(w orchestrator.WorkerSettings) MemberOption {
	w.Labels = slices.Clone(w.Labels)
	return memberOptionFunc(func(s *option.Member) {
		if err := w.Check(); err != nil {
			s.Reject(fmt.Errorf("WithSettings: %w", err))
		}
		s.Worker = w
	})
}

// newMemberSettings returns the settings of a member, and every problem with its
// arguments.
func newMemberSettings(manager, name string, lease time.Duration, opts []MemberOption) (option.Member, error) {
	s := option.Member{Settings: peer.Defaults(), Drain: membership.DefaultDrain}
	option.Apply(&s.Settings, opts, func(o MemberOption) { o.ApplyMember(&s) })
	if err := identity.CheckAddress(manager); err != nil {
		s.Reject(fmt.Errorf("manager: %w", err))
	}
	if err := identity.CheckName("worker", name); err != nil {
		s.Reject(err)
	} else {
		s.Identify(identity.Principal{Role: identity.RoleWorker, Name: name})
	}
	if lease == 0 {
		s.Invalid("worker has no lease: use worker.WithLease")
	}
	return s, s.Err()
}

// advertised returns the address at which a worker that listens on own can be
// called: given, unless it is empty.
func advertised(own net.Addr, given string) (string, error) {
	if given != "" {
		return given, nil
	}
	if err := identity.CheckAddress(own.String()); err != nil {
		return "", fmt.Errorf("listener's address: %w: set another with WithAdvertise", err)
	}
	return own.String(), nil
}
