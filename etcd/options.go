package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/internal/membership"
)

// ClientConfig returns settings for [clientv3.New] that suit leaders and workers.
// They differ from the client's defaults in three ways, two of which shorten the
// recovery from a failure:
//
//   - A lost connection is retried at least once a second. By default the pauses
//     grow to two minutes, so the client would find a recovered etcd much later.
//   - A connection that is silent for 10 s is probed, and closed 3 s later if the
//     probe has no answer. Without probes, a connection whose peer has vanished is
//     kept for a quarter of an hour, even if other endpoints would answer.
//   - The client does not log, because its relevant errors reach the callers.
//
// Dialing takes at most 5 s. Callers may change every setting, and add TLS, Username
// and Password. Safety depends on none of them, so any client works.
func ClientConfig(endpoints ...string) clientv3.Config {
	again := backoff.DefaultConfig
	again.BaseDelay = 100 * time.Millisecond
	again.MaxDelay = time.Second
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          5 * time.Second,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 3 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: again, MinConnectTimeout: time.Second}),
		},
		Logger: zap.NewNop(),
	}
}

// Option is an option of every constructor of this package. [WithOptions] passes a
// []Option on.
type Option interface {
	ElectionOption
	MemberOption
	apply(*settings)
}

// settings holds the options that all constructors share.
type settings struct {
	prefix   string
	layout   keys.Layout
	logger   *slog.Logger
	timeout  time.Duration
	problems []error
}

func newSettings(opts []Option) (settings, error) {
	s := defaults()
	applyAll(&s, opts, func(o Option) { o.apply(&s) })
	return s, s.finish()
}

func defaults() settings {
	return settings{prefix: "/work/", logger: slog.New(slog.DiscardHandler), timeout: 5 * time.Second}
}

// applyAll calls apply with each option, in their order. It records a problem for each
// option that is nil.
func applyAll[O any](s *settings, opts []O, apply func(O)) {
	for _, opt := range opts {
		if any(opt) == nil {
			s.invalid("a %v is nil", reflect.TypeFor[O]())
			continue
		}
		apply(opt)
	}
}

// finish returns all errors of the options, joined.
func (s *settings) finish() error {
	var err error
	if s.layout, err = keys.New(s.prefix); err != nil {
		s.invalid("WithPrefix: %w", err)
	}
	return errors.Join(s.problems...)
}

func (s *settings) invalid(format string, args ...any) {
	s.problems = append(s.problems, fmt.Errorf("%w: "+format, append([]any{orchestrator.ErrInvalid}, args...)...))
}

type option func(*settings)

func (f option) apply(s *settings) { f(s) }

func (f option) applyElection(s *electionSettings) { f(&s.settings) }

// WithOptions returns an Option that applies opts in their order. Use it to give the same
// slice of Options to several constructors, which also take options of their own.
func WithOptions(opts ...Option) Option {
	opts = slices.Clone(opts)
	return option(func(s *settings) {
		applyAll(s, opts, func(o Option) { o.apply(s) })
	})
}

// WithPrefix sets the prefix of all keys. The default is /work/. It must be
// printable, end in a slash and be used by nothing else. All processes that share a
// prefix form one system.
func WithPrefix(prefix string) Option {
	return option(func(s *settings) { s.prefix = prefix })
}

// WithLogger sets the logger. The default, and nil, discard everything. Normal
// operation is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return option(func(s *settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.logger = l
	})
}

// WithDialTimeout sets how long the first contact with etcd may take. A call that
// asks once, such as [Registry.Get], then fails with [ErrUnreachable]. A call that
// continues until its context ends, such as [Member.Run], retries and logs the
// reason. The default is 5 s, the minimum 1 ms. Finding the reason for a missing
// answer may take as long again, up to one second.
//
// After the first contact, every call waits for etcd until its context ends.
func WithDialTimeout(d time.Duration) Option {
	return option(func(s *settings) {
		if d < time.Millisecond {
			s.invalid("WithDialTimeout(%v): must be at least 1ms", d)
		}
		s.timeout = d
	})
}

// ElectionOption is an option of [NewElection]. Every [Option] is one.
type ElectionOption interface {
	applyElection(*electionSettings)
}

type electionSettings struct {
	settings
	lease time.Duration
}

type electionOption func(*electionSettings)

func (f electionOption) applyElection(s *electionSettings) { f(s) }

// WithLeaseDuration sets how long a leader without contact to etcd remains the
// leader. The default is 10 s. It must be whole seconds. etcd grants no lease
// shorter than 1.5 election timeouts, rounded up, which is 2 s with its defaults.
// With a shorter lease [Election.Run] fails with [ErrLeaseTooShort].
func WithLeaseDuration(d time.Duration) ElectionOption {
	return electionOption(func(s *electionSettings) {
		if err := checkLease(d); err != nil {
			s.invalid("WithLeaseDuration: %w", err)
		}
		s.lease = d
	})
}

// MemberOption is an option of [NewMember]. Every [Option] is one.
type MemberOption interface {
	applyMember(*memberSettings)
}

type memberSettings struct {
	settings
	memberOptions
}

// memberOptions holds the options that only members have.
type memberOptions struct {
	attributes map[string]string
	placement  orchestrator.WorkerSettings
	drain      time.Duration
}

type memberOption func(*memberSettings)

func (f memberOption) applyMember(s *memberSettings) { f(s) }

func (f option) applyMember(s *memberSettings) { f(&s.settings) }

// WithDrain sets how long a member drains when the context of [Member.Run] has ended. Then the
// tasks that have not moved are stopped. The default is 20 s. 0 stops them at once. It must not be
// negative.
func WithDrain(d time.Duration) MemberOption {
	return memberOption(func(s *memberSettings) {
		if s.drain = d; d < 0 {
			s.invalid("WithDrain(%v): must not be negative", d)
		}
	})
}

// WithAttributes adds attributes to the worker's membership, such as its location or
// version, for readers of the membership. This package does not use them. The map is
// copied. By default there are no attributes.
func WithAttributes(attributes map[string]string) MemberOption {
	return memberOption(func(s *memberSettings) { s.attributes = maps.Clone(attributes) })
}

// WithSettings sets the zone, the labels, the share and the limit of the worker, with which
// the leader places tasks. To change them, make another Member: the leader takes those of
// the present membership. The default is no labels, the zone with the empty name, a share
// of 1 and no limit.
func WithSettings(w orchestrator.WorkerSettings) MemberOption {
	w.Labels = slices.Clone(w.Labels)
	return memberOption(func(s *memberSettings) {
		if err := w.Check(); err != nil {
			s.problems = append(s.problems, fmt.Errorf("WithSettings: %w", err))
		}
		s.placement = w
	})
}

// newMemberSettings applies the options. It reports all invalid arguments and
// options, joined.
func newMemberSettings(name string, lease time.Duration, opts []MemberOption) (memberSettings, error) {
	s := memberSettings{settings: defaults(), memberOptions: memberOptions{drain: membership.DefaultDrain}}
	applyAll(&s.settings, opts, func(o MemberOption) { o.applyMember(&s) })
	if err := checkName("worker", name); err != nil {
		s.problems = append(s.problems, err)
	}
	if lease == 0 {
		s.invalid("worker has no lease: use worker.WithLease")
	} else if err := checkLease(lease); err != nil {
		s.problems = append(s.problems, fmt.Errorf("worker.WithLease: %w", err))
	}
	return s, s.finish()
}

// maxName is the maximum length of a name in bytes. Escaping may triple it, and a
// key may contain two names.
const maxName = 1024

func checkName(what, name string) error {
	if name == "" {
		return fmt.Errorf("%w: a %s without a name", orchestrator.ErrInvalid, what)
	}
	if len(name) > maxName {
		return fmt.Errorf("%w: a %s name of %d bytes: at most %d", orchestrator.ErrInvalid, what, len(name), maxName)
	}
	return nil
}
