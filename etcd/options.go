package etcd

// The options of the constructors, and the first contact with etcd.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	clientv3 "go.etcd.io/etcd/client/v3"
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

// WithDialTimeout sets how long the first contact with etcd may take, before it
// fails with [ErrUnreachable]. The default is 5 s; at least a millisecond.
// After the first contact, whatever waits for etcd waits for as long as its
// context lives.
func WithDialTimeout(d time.Duration) Option {
	return option(func(s *settings) {
		if d < time.Millisecond {
			s.invalid("WithDialTimeout(%v): must be at least 1ms", d)
		}
		s.timeout = d
	})
}

// enter makes the first contact: whether etcd answers, and whether the prefix
// is ours, which it becomes where it holds nothing.
func (s *settings) enter(ctx context.Context, c *clientv3.Client) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	format := s.layout.Format()
	resp, err := c.Txn(limited).
		// No key of the prefix was ever created.
		If(clientv3.Compare(clientv3.CreateRevision(s.prefix), "=", 0).WithPrefix()).
		Then(clientv3.OpPut(format, keys.Format)).
		Else(clientv3.OpGet(format)).
		Commit()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %v: %w", ErrUnreachable, c.Endpoints(), context.Cause(ctx))
	case err != nil && limited.Err() != nil:
		return fmt.Errorf("%w: %v within %v: %w", ErrUnreachable, c.Endpoints(), s.timeout, err)
	case err != nil:
		return fmt.Errorf("first contact with etcd at %v: %w", c.Endpoints(), err)
	case resp.Succeeded:
		return nil
	}
	kvs := resp.Responses[0].GetResponseRange().GetKvs()
	switch {
	case len(kvs) == 0:
		return fmt.Errorf("%w: %s holds keys, but not %s", ErrForeignPrefix, s.prefix, format)
	case string(kvs[0].Value) != keys.Format:
		return fmt.Errorf("%w: %s is %q, not %q", ErrForeignPrefix, format, kvs[0].Value, keys.Format)
	}
	return nil
}
