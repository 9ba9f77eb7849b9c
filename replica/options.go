package replica

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// Option configures a [Replica]; see [New].
type Option func(*settings)

type settings struct {
	name         string
	listen       string
	advertise    string
	lease, stop  time.Duration
	drain        time.Duration
	interval     time.Duration
	attributes   map[string]string
	placement    orchestrator.WorkerSettings
	role         Role
	credentials  *grpc.Credentials
	plaintext    bool
	orchestrator []orchestrator.Option
	worker       []worker.Option
	log          *slog.Logger
	lastResort   func(tasks []string)
	leading      func(*orchestrator.Orchestrator[grpc.WorkerID, string]) (stop func()) // nil: nothing is called
	network      network                                                               // nil: gRPC
	problems     []error
}

func (s *settings) invalid(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

func newSettings(opts []Option) (*settings, error) {
	s := &settings{
		lease: 15 * time.Second, stop: 2 * time.Second, drain: 20 * time.Second,
		log: slog.New(slog.DiscardHandler),
	}
	s.name, _ = os.Hostname()
	for _, opt := range opts {
		opt(s)
	}
	if s.name == "" {
		s.name = "replica"
	}
	s.log = s.log.With("replica", s.name)
	if s.interval == 0 {
		s.interval = min(time.Second, s.lease/3)
	}
	if s.interval > s.lease/3 { // otherwise members would not be called often enough, and count as uncallable
		s.invalid("WithInterval(%v): must be at most a third of the lease, which is %v", s.interval, s.lease)
	}
	if s.credentials != nil && s.plaintext {
		s.invalid("WithCredentials and WithPlaintext: one of them")
	}
	if s.listen == "" {
		s.listen = "127.0.0.1:0"
		if s.credentials != nil || s.plaintext {
			s.listen = ":0"
		}
	}
	if len(s.problems) == 0 {
		record := Update{Self: Member{ID: 1, Heartbeat: 1, Lease: s.lease, Name: s.name, Address: s.advertise, Attributes: s.attributes, Settings: s.placement}}
		if err := record.Check(); err != nil { // otherwise each Sync would fail
			s.problems = append(s.problems, fmt.Errorf("the record of the replica: %w", err))
		}
	}
	if s.lastResort == nil {
		s.lastResort = s.exit
	}
	s.worker = slices.Concat([]worker.Option{worker.WithLogger(s.log)}, s.worker,
		[]worker.Option{worker.WithLease(s.lease, s.stop), worker.WithLastResort(s.lastResort)})
	s.orchestrator = slices.Concat([]orchestrator.Option{
		orchestrator.WithLogger(s.log), orchestrator.WithCommunicatorTimeout(s.lease / 3),
	}, s.orchestrator)
	return s, errors.Join(s.problems...)
}

// exit is the default of WithLastResort. It does not wait long for the log and the standard
// error: what blocks them may be what keeps the tasks from stopping.
func (s *settings) exit(tasks []string) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		s.log.Error("tasks outlive the lease and may soon run elsewhere: the process exits", "tasks", tasks)
		_, _ = fmt.Fprintln(os.Stderr, "replica: tasks outlive the lease:", tasks) // then nothing reads it
	}()
	select {
	case <-said:
	case <-time.After(s.lease / 100):
	}
	os.Exit(3) //nolint:forbidigo // the last resort
}

// WithName sets the name of the replica in logs and in the Status of others. It need not
// be unique. The default is the host name. It has 1 to 1024 bytes of UTF-8.
func WithName(name string) Option {
	return func(s *settings) {
		if name == "" || len(name) > maxText {
			s.invalid("WithName: %d bytes: must be from 1 to %d", len(name), maxText)
		}
		s.name = name
	}
}

// WithListen sets the address, as host:port, on which the replica answers the leader.
// Port 0 takes a free one. The default is 127.0.0.1:0, and :0 with [WithCredentials] or
// [WithPlaintext].
func WithListen(address string) Option { return func(s *settings) { s.listen = address } }

// WithAdvertise sets the address, as host:port, at which other replicas reach this one.
// Port 0, or no port, stands for that of the listener. By default it is the listener's
// address; if that is unspecified, such as :0, it is the address from which this machine
// reaches others. Of an address on loopback the replica warns, and [Replica.Run] fails as
// soon as it sees a replica that lives at another address.
func WithAdvertise(address string) Option { return func(s *settings) { s.advertise = address } }

// WithLease sets how long after its last Sync the replica may run tasks, and the time
// that tasks need to stop; see worker.WithLease. A crashed replica's tasks start
// elsewhere after about one lease. The default is 15 s and 2 s; the lease is at most
// [MaxLease].
func WithLease(lease, stop time.Duration) Option {
	return func(s *settings) {
		if lease < minLease || lease > MaxLease {
			s.invalid("WithLease: lease is %v: must be from %v to %v", lease, minLease, MaxLease)
		}
		s.lease, s.stop = lease, stop
	}
}

// WithDrain sets how long a replica that leaves waits until its tasks have moved. The
// default is 20 s. 0 stops them at once.
func WithDrain(d time.Duration) Option {
	return func(s *settings) {
		if d < 0 {
			s.invalid("WithDrain(%v): must not be negative", d)
		}
		s.drain = d
	}
}

// WithInterval sets the time between the terms of a leader, in each of which it calls every
// replica. It is at most a third of the lease. The default is 1 s, or a third of the lease
// if that is shorter.
func WithInterval(d time.Duration) Option {
	return func(s *settings) {
		if d <= 0 {
			s.invalid("WithInterval(%v): must be above 0", d)
		}
		s.interval = d
	}
}

// WithAttributes describes the replica to others, such as its version or its dashboard's
// address. By default there are no attributes. They have at most 4 KiB of UTF-8.
func WithAttributes(attributes map[string]string) Option {
	attributes = maps.Clone(attributes)
	return func(s *settings) { s.attributes = attributes }
}

// WithSettings sets the zone, the labels, the share and the limit of the replica's worker,
// with which the leader places tasks. The default is no labels, the zone with the empty
// name, a share of 1 and no limit.
func WithSettings(w orchestrator.WorkerSettings) Option {
	w.Labels = slices.Clone(w.Labels)
	return func(s *settings) { s.placement = w }
}

// WithWorkerOnly makes a replica that never leads.
func WithWorkerOnly() Option { return func(s *settings) { s.role = WorkerOnly } }

// WithLeaderOnly makes a replica that runs no tasks.
func WithLeaderOnly() Option { return func(s *settings) { s.role = CandidateOnly } }

// WithCredentials makes all calls between replicas use TLS with certificates at both
// ends. All replicas may share one certificate; see [LoadCredentials].
func WithCredentials(c *grpc.Credentials) Option {
	return func(s *settings) {
		if c == nil {
			s.invalid("WithCredentials: must be from LoadCredentials")
		}
		s.credentials = c
	}
}

// WithPlaintext lets the replica be called from other machines without TLS. Any process
// that reaches the port can then start and stop tasks. It is for networks that encrypt
// and authenticate by other means.
func WithPlaintext() Option { return func(s *settings) { s.plaintext = true } }

// WithOrchestrator sets options of the leader's orchestrator. The replica sets WithEpoch
// and WithGracePeriod itself. Unless they are given here, WithLogger takes the replica's
// logger and WithCommunicatorTimeout a third of the lease.
func WithOrchestrator(opts ...orchestrator.Option) Option {
	return func(s *settings) { s.orchestrator = append(s.orchestrator, opts...) }
}

// WithLeading sets a function that is called each time the replica begins to lead, with the
// orchestrator of this leadership, before its first term. stop is called after its last
// term; it may be nil. So a dashboard or a history follows the terms wherever they run:
//
//	replica.WithLeading(func(o *orchestrator.Orchestrator[grpc.WorkerID, string]) (stop func()) {
//		return dashboard.Lead(o)
//	})
//
// Calls of leading and stop do not overlap, also those of two leaderships. No term begins
// before leading has returned, and Run waits for stop, so both must return soon. The replica
// sets the tasks and the workers of o and runs its terms. leading must not.
func WithLeading(leading func(o *orchestrator.Orchestrator[grpc.WorkerID, string]) (stop func())) Option {
	return func(s *settings) {
		if leading == nil {
			s.invalid("WithLeading: the function is nil")
		}
		s.leading = leading
	}
}

// WithWorker sets options of the replica's worker. The replica sets WithLease and
// WithLastResort itself.
func WithWorker(opts ...worker.Option) Option {
	return func(s *settings) { s.worker = append(s.worker, opts...) }
}

// WithLogger sets the logger. The default, and nil, discard everything. Normal operation
// is logged at Info. Each line has the name of the replica in the attribute replica.
func WithLogger(l *slog.Logger) Option {
	return func(s *settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.log = l
	}
}

// WithLastResort sets the function that is called with tasks that have not stopped when
// the lease is about to end; see worker.WithLastResort. The default logs them, and exits
// with code 3.
func WithLastResort(f func(tasks []string)) Option {
	return func(s *settings) {
		if f == nil {
			s.invalid("WithLastResort: the function is nil")
		}
		s.lastResort = f
	}
}

// withNetwork replaces gRPC in tests.
func withNetwork(n network) Option { return func(s *settings) { s.network = n } }

// network connects replicas.
type network interface {
	// Serve begins to answer calls of w, and returns the address at which others call it.
	// served receives the result when ctx has ended and no call is under way, or after a
	// failure. Then it is closed.
	Serve(ctx context.Context, w *worker.Worker[string]) (address string, served <-chan error, err error)
	// Caller returns what a leader calls others with.
	Caller(c grpc.RevisedContents) (caller, error)
}

// LoadCredentials reads the certificate and the key of this replica and the authorities of
// all replicas from PEM files; see grpc.LoadCredentials.
//
// A replica may lead, and a leader commands every replica. So names protect nothing among
// replicas, and all of them may share one certificate: any that the authorities have
// signed is accepted. It must be for servers and clients both. If identities are given,
// the certificate must have one of them among its URIs, such as the SPIFFE ID of the
// service.
func LoadCredentials(cert, key, ca string, identities ...string) (*grpc.Credentials, error) {
	c, err := grpc.LoadCredentials(cert, key, ca, grpc.WithIdentities(func(c *x509.Certificate) []string {
		for _, uri := range c.URIs {
			if slices.Contains(identities, uri.String()) {
				return []string{grpc.ReplicaURI}
			}
		}
		if len(identities) == 0 {
			return []string{grpc.ReplicaURI}
		}
		return nil
	}))
	if err != nil && len(identities) > 0 {
		return nil, fmt.Errorf("%w; the identities of a replica are %q", err, identities)
	}
	return c, err
}
