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
// fails with [ErrUnreachable]. The default is 5 s; at least a millisecond. To find
// out why there was no answer takes as long again at most, and no more than a
// second.
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
	format, err := s.format(limited, c)
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%w: %v: %w", ErrUnreachable, c.Endpoints(), context.Cause(ctx))
	case err != nil && limited.Err() != nil:
		if why := s.reason(ctx, c); why != nil {
			err = fmt.Errorf("%w: %w", err, why)
		}
		return fmt.Errorf("%w: %v within %v: %w", ErrUnreachable, c.Endpoints(), s.timeout, err)
	case err != nil:
		return fmt.Errorf("first contact with etcd at %v: %w", c.Endpoints(), err)
	case format == nil:
		return fmt.Errorf("%w: %s holds keys, but not %s", ErrForeignPrefix, s.prefix, s.layout.Format())
	case string(format) != keys.Format:
		return fmt.Errorf("%w: %s is %q, not %q", ErrForeignPrefix, s.layout.Format(), format, keys.Format)
	}
	return nil
}

// format returns what the prefix says that it is, which is said to be ours where
// it holds nothing; nil where it holds keys and does not say.
//
// Three steps, most often one: to compare that a prefix is empty has etcd read
// every key and every value in it, while all others wait.
func (s *settings) format(ctx context.Context, c *clientv3.Client) ([]byte, error) {
	key := s.layout.Format()
	got, err := c.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(got.Kvs) > 0 {
		return got.Kvs[0].Value, nil
	}
	looked, err := c.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(s.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, err
	}
	if first(looked.Responses[1]) != nil {
		return first(looked.Responses[0]).GetValue(), nil // somebody came in between, or it is not ours
	}
	made, err := c.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(s.prefix), "=", 0).WithPrefix()). // no key of it is there
		Then(clientv3.OpPut(key, keys.Format)).
		Else(clientv3.OpGet(key)).
		Commit()
	switch {
	case err != nil:
		return nil, err
	case made.Succeeded:
		return []byte(keys.Format), nil
	}
	return first(made.Responses[0]).GetValue(), nil
}
