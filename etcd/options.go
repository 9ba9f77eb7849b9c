package etcd

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

// Option is an option of every constructor of this package.
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
	for _, opt := range opts {
		if opt == nil {
			s.invalid("an Option is nil")
			continue
		}
		opt.apply(&s)
	}
	return s, s.finish()
}

func defaults() settings {
	return settings{prefix: "/work/", logger: slog.New(slog.DiscardHandler), timeout: 5 * time.Second}
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

func (f option) apply(s *settings)                 { f(s) }
func (f option) applyElection(s *electionSettings) { f(&s.settings) }

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
