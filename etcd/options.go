package etcd

// The options of the constructors.

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

// Option is for every constructor of this package.
type Option interface {
	ElectionOption
	MemberOption
	apply(*settings)
}

// settings is what the options add up to that are for every constructor.
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

// finish returns all that is wrong with the options.
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

// WithPrefix sets what all keys begin with. The default is /work/. It has to be
// printable, to end in a slash, and to be nobody else's: all that share a
// prefix work together.
func WithPrefix(prefix string) Option {
	return option(func(s *settings) { s.prefix = prefix })
}

// WithLogger sets where to log. The default, and nil, discard everything. What
// goes as it should is logged at Debug and Info.
func WithLogger(l *slog.Logger) Option {
	return option(func(s *settings) {
		if l == nil {
			l = slog.New(slog.DiscardHandler)
		}
		s.logger = l
	})
}

// WithDialTimeout sets how long the first contact with etcd may take. A call that
// asks once, such as [Registry.Get], fails with [ErrUnreachable] after that. A call
// that goes on until its context ends, such as [Member.Run], tries again and logs
// why. The default is 5 s; at least a millisecond. To find out why there was no
// answer takes as long again at most, and no more than a second.
// After the first contact, every call waits for etcd for as long as its context
// lives.
func WithDialTimeout(d time.Duration) Option {
	return option(func(s *settings) {
		if d < time.Millisecond {
			s.invalid("WithDialTimeout(%v): must be at least 1ms", d)
		}
		s.timeout = d
	})
}
