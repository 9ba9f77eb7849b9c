package grpc

// The options of NewManager.

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator"
	"google.golang.org/grpc"
)

// ManagerOption is for [NewManager]. Every [Option] is one.
type ManagerOption interface {
	applyManager(*managerSettings)
}

type managerSettings struct {
	settings
	rules
	interval     time.Duration
	orchestrator []orchestrator.Option
	probing      time.Duration     // how long a worker that registers has to answer: probeTime but in tests
	dialing      []grpc.DialOption // for tests, whose workers are elsewhere
}

type managerOption func(*managerSettings)

func (f managerOption) applyManager(s *managerSettings) { f(s) }

// WithInterval sets how often a term is run where nothing happens; after a
// change one is run at once, or when the one under way is over. The default is a
// second. It has to be positive, and at most an hour.
//
// A term is over once its calls have been answered. A task that does not stop when
// it is told to keeps one term, and no further ones, for as long as a call may
// take, ten seconds by default, and what is put, deleted or drained meanwhile, on
// other workers too, waits for the next: give [WithOrchestrator] a shorter
// orchestrator.WithCommunicatorTimeout where that is too long.
//
// It is also how often workers are called, so that one that cannot be is found
// out (see [WithUnreachable]), and that contents reach tasks that run.
func WithInterval(every time.Duration) ManagerOption {
	return managerOption(func(s *managerSettings) {
		if every <= 0 || every > time.Hour {
			s.invalid("WithInterval(%v): must be above 0 and at most 1h", every)
		}
		s.interval = every
	})
}

// WithOrchestrator sets options of the manager's orchestrator. Its epoch, which is
// kept in the store, and its grace period, which is
// [orchestrator.HoldUntilRemoved], are the manager's to set: what is given here
// for those does not count. Its logger is the manager's, unless one is given
// here. It may be given more than once. The default is none.
func WithOrchestrator(opts ...orchestrator.Option) ManagerOption {
	return managerOption(func(s *managerSettings) { s.orchestrator = append(s.orchestrator, opts...) })
}

// WithLeases sets how short and how long a lease may be that a worker asks for. A
// worker that asks for another is refused. The default is from a second to a
// minute; 0 < shortest <= longest <= 24h.
//
// After a crash of a worker its tasks are started elsewhere when its lease has run
// out, and after one of the manager its first term may wait as long for a worker
// that does not come back. How long it may be away without any worker's noticing
// is in the package documentation.
func WithLeases(shortest, longest time.Duration) ManagerOption {
	return managerOption(func(s *managerSettings) {
		if shortest <= 0 || longest < shortest || longest > 24*time.Hour {
			s.invalid("WithLeases(%v, %v): must be 0 < shortest <= longest <= 24h", shortest, longest)
		}
		s.leaseMin, s.leaseMax = shortest, longest
	})
}

// WithUnreachable sets for how long calls to a worker may fail, counted from the first
// that did since one was answered, before its heartbeats are no longer
// acknowledged: its lease then runs out, and its tasks go to workers that
// can be called. A worker that does not stop what it was not given counts as one that
// cannot be called. The default is 30 seconds. It has to be positive, and at most 24h.
func WithUnreachable(d time.Duration) ManagerOption {
	return managerOption(func(s *managerSettings) {
		if d <= 0 || d > 24*time.Hour {
			s.invalid("WithUnreachable(%v): must be above 0 and at most 24h", d)
		}
		s.unreachable = d
	})
}

func newManagerSettings(store Store, opts []ManagerOption) (managerSettings, error) {
	s := managerSettings{
		settings: defaults(),
		rules:    rules{leaseMin: time.Second, leaseMax: time.Minute, unreachable: 30 * time.Second},
		interval: time.Second, probing: probeTime,
	}
	for _, opt := range opts {
		if opt == nil {
			s.invalid("a ManagerOption is nil")
			continue
		}
		opt.applyManager(&s)
	}
	s.identify(party{role: roleManager})
	if absent(store) {
		s.invalid("the Store is nil")
	}
	// Only an orchestrator knows what it takes: this one is not used.
	if _, err := orchestrator.New[Worker, string](&Communicator{}, s.orchestrator...); err != nil {
		s.problems = append(s.problems, fmt.Errorf("WithOrchestrator: %w", err))
	}
	if err := s.finish(); err != nil {
		return s, fmt.Errorf("new manager: %w", err)
	}
	return s, nil
}
