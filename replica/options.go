package replica

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// Option configures a [Replica]; see [New]. Those without tasks are for [Lead], too.
type Option func(*settings)

type settings struct {
	self                  Member // as it is published first, without an ID
	stop, drain, interval time.Duration
	orchestrator          []orchestrator.Option
	worker                []worker.Option
	log                   *slog.Logger
	lastResort            func(tasks []string)
	exits                 []any // for the log: the code with which lastResort ends the process
	leading               func(*orchestrator.Orchestrator[WorkerID, string]) (stop func())
	ofTasks               []string // the options that were given and that Lead does not have
	lead                  bool     // for Lead
	problems              []error
}

// refuse records a problem if there is one.
func (s *settings) refuse(bad bool, format string, args ...any) {
	if bad {
		s.problems = append(s.problems, invalid(format, args...))
	}
}

// newSettings returns the settings for a backend with the given traits, and every problem of
// the options.
func newSettings(opts []Option, traits Traits) *settings {
	s := &settings{
		self: Member{Lease: cmp.Or(traits.Lease, 15*time.Second)}, stop: cmp.Or(traits.Stop, 2*time.Second),
		drain: 20 * time.Second, interval: time.Second, log: slog.Default(),
		leading: func(*orchestrator.Orchestrator[WorkerID, string]) func() { return nil },
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		s.self.Service = info.Path
	}
	s.lastResort, s.exits = s.exit, []any{"code", exitCode}
	host, _ := os.Hostname()
	s.self.Name = cmp.Or(host, "replica")
	for i, opt := range opts {
		if s.refuse(opt == nil, "option %d is nil", i+1); opt != nil {
			opt(s)
		}
	}
	s.check(traits)
	s.log = cmp.Or(s.log, slog.Default()).With("replica", s.self.Name)
	s.interval = min(s.interval, s.self.Lease/3)
	s.orchestrator = slices.Concat([]orchestrator.Option{
		orchestrator.WithLogger(s.log), orchestrator.WithFirstMoves(8), orchestrator.WithSettle(20 * time.Millisecond),
	}, s.orchestrator, []orchestrator.Option{
		orchestrator.WithGracePeriod(orchestrator.HoldUntilRemoved), orchestrator.WithCommunicatorTimeout(s.self.Lease / 3),
	})
	s.worker = slices.Concat([]worker.Option{worker.WithLogger(s.log)}, s.worker,
		[]worker.Option{worker.WithLease(s.self.Lease, s.stop), worker.WithLastResort(s.lastResort)})
	return s
}

// ofTasks returns an option that Lead does not have.
func ofTasks(name string, set Option) Option {
	return func(s *settings) {
		s.ofTasks = append(s.ofTasks, name)
		set(s)
	}
}

// check records the options that are out of range, and those for others that the replica
// would override silently.
func (s *settings) check(traits Traits) {
	m, least, size := &s.self, max(traits.Least, MinLease), 0
	for k, v := range m.Attributes {
		size += len(k) + len(v)
	}
	s.refuse(m.Name == "" || len(m.Name) > maxText, "WithName: the name has %d bytes, must have 1 to %d", len(m.Name), maxText)
	s.refuse(len(m.Service) > maxText, "WithService: the name has %d bytes: at most %d", len(m.Service), maxText)
	s.refuse(size > maxAttributes, "WithAttributes: attributes of %d bytes: at most %d", size, maxAttributes)
	s.refuse(m.Lease < least || m.Lease > MaxLease, "WithLease(%v, %v): the lease must be from %v to %v", m.Lease, s.stop, least, MaxLease)
	s.refuse(s.drain < 0, "WithDrain(%v): must not be negative", s.drain)
	s.refuse(s.interval <= 0, "WithInterval(%v): must be above 0", s.interval)
	s.refuse(m.Role > CandidateOnly, "WithRole(%d): unknown", m.Role)
	s.refuse(s.log == nil, "WithLogger: the logger is nil")
	s.refuse(s.leading == nil, "WithLeading: the function is nil")
	if err := m.Settings.Check(); err != nil {
		s.problems = append(s.problems, fmt.Errorf("WithSettings: %w", err))
	}
	const probe = time.Hour - 1
	o, err := orchestrator.New(&communicator{}, slices.Concat([]orchestrator.Option{
		orchestrator.WithEpoch(uint64(probe)), orchestrator.WithGracePeriod(probe), orchestrator.WithCommunicatorTimeout(probe),
	}, s.orchestrator)...)
	if err != nil {
		s.problems = append(s.problems, fmt.Errorf("WithOrchestrator: %w", err))
	} else {
		c, text := o.Config(), "WithOrchestrator(%s): the replica sets it"
		s.refuse(c.Epoch != uint64(probe), text, "WithEpoch")
		s.refuse(c.GracePeriod != probe, text, "WithGracePeriod")
		s.refuse(c.CommunicatorTimeout != probe, text, "WithCommunicatorTimeout")
	}
	for _, name := range worker.Given(s.worker...) {
		s.refuse(true, "WithWorker(%s): the replica does not allow it", name)
	}
}

// exitCode is that of a process whose tasks have outlived its lease.
const exitCode = 3

// exit is the default of WithLastResort. It does not wait long for the log: what blocks it
// may be what keeps the tasks from stopping.
func (s *settings) exit(tasks []string) {
	time.AfterFunc(s.self.Lease/100, func() { os.Exit(exitCode) }) //nolint:forbidigo // the last resort
	s.log.Error("tasks outlive the lease, the process exits", "tasks", tasks, "code", exitCode)
	os.Exit(exitCode) //nolint:forbidigo // the last resort
}

// WithName sets the name of the replica in logs and in the Status of others. It need not
// be unique. The default is the host name. It has 1 to 1024 bytes. Replicas of one name count as
// one if they fall again and again ([orchestrator.PauseFallen]), unless WithSettings has a Host.
func WithName(name string) Option { return func(s *settings) { s.self.Name = name } }

// WithService sets the name of the service. A replica refuses to join a table in which a
// live member names another service, with [ErrForeign]. An empty name refuses none, and is
// refused by none. The default is the path of the main package. It has at most 1024 bytes.
func WithService(name string) Option { return func(s *settings) { s.self.Service = name } }

// WithLease sets how long after its last Sync the replica may run tasks, and the time
// that tasks need to stop; see worker.WithLease. A crashed replica's tasks start
// elsewhere after about one lease. The default is 15 s and 2 s, unless the backend has
// others. The lease must be from [MinLease] to [MaxLease].
func WithLease(lease, stop time.Duration) Option {
	return func(s *settings) { s.self.Lease, s.stop = lease, stop }
}

// WithDrain sets how long a replica that leaves waits until its tasks have moved, also for
// tasks that have no place elsewhere, such as those that run on every replica. The default is
// 20 s. 0 stops them at once. It must not be negative.
func WithDrain(d time.Duration) Option {
	return ofTasks("WithDrain", func(s *settings) { s.drain = d })
}

// WithInterval sets the time between the terms of a leader, at most a third of the lease. The
// default is 1 s. It must be above 0.
func WithInterval(d time.Duration) Option {
	return ofTasks("WithInterval", func(s *settings) { s.interval = d })
}

// WithAttributes describes the replica to others, such as its version or its address. The
// default is no attributes. They have at most 4 KiB. The map must not be changed.
func WithAttributes(attributes map[string]string) Option {
	return func(s *settings) { s.self.Attributes = attributes }
}

// WithSettings sets the zone, the labels, the share and the limit with which a leader
// places tasks on the replica. The default is the zero value. They must not be changed.
func WithSettings(w orchestrator.WorkerSettings) Option {
	return ofTasks("WithSettings", func(s *settings) { s.self.Settings = w })
}

// WithRole makes a replica that never leads ([WorkerOnly]) or that runs no tasks
// ([CandidateOnly]). The default is [WorkerAndCandidate].
func WithRole(role Role) Option {
	return ofTasks("WithRole", func(s *settings) { s.self.Role = role })
}

// WithOrchestrator sets options of the leader's orchestrator. WithEpoch, WithGracePeriod
// and WithCommunicatorTimeout are the replica's and are errors here.
func WithOrchestrator(opts ...orchestrator.Option) Option {
	return ofTasks("WithOrchestrator", func(s *settings) { s.orchestrator = append(s.orchestrator, opts...) })
}

// WithWorker sets options of the replica's worker. WithLease and WithLastResort are the
// replica's, and WithCompletion, WithAttempts and WithRecord are for jobs that end. They
// are errors here.
func WithWorker(opts ...worker.Option) Option {
	return ofTasks("WithWorker", func(s *settings) { s.worker = append(s.worker, opts...) })
}

// WithLeading sets a function that is called each time the replica begins to lead, with the
// orchestrator of this leadership, before its first term. stop is called after its last
// term; it may be nil. Calls of leading and stop do not overlap. No term begins before
// leading has returned, and Run waits for stop, so both must return soon. leading must not
// be nil.
func WithLeading(leading func(o *orchestrator.Orchestrator[WorkerID, string]) (stop func())) Option {
	return ofTasks("WithLeading", func(s *settings) { s.leading = leading })
}

// WithLogger sets the logger. The default is slog.Default(). A replica logs about five
// lines in its life, a leader one for each term with changes, and in trouble one line for each
// cause and minute. It must not be nil;
// slog.DiscardHandler silences it.
func WithLogger(l *slog.Logger) Option { return func(s *settings) { s.log = l } }

// WithLastResort sets the function that is called with the tasks that have not stopped when
// the lease is about to end; see worker.WithLastResort. The default logs them, and exits
// with code 3. f must not be nil.
func WithLastResort(f func(tasks []string)) Option {
	return func(s *settings) { s.lastResort, s.exits = f, nil }
}
