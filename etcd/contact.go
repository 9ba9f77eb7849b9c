package etcd

// The first contact with etcd: whether it answers, and whose the prefix is.

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// contact remembers that the first contact has succeeded. The zero contact has
// not been made.
type contact struct{ made atomic.Bool }

// enter makes the contact unless it was made. Several calls may make it at once,
// which does no harm.
func (c *contact) enter(ctx context.Context, s *settings, client *clientv3.Client) error {
	return c.makeBy(ctx, s.enter, client)
}

// await is enter for a call that goes on until ctx ends.
func (c *contact) await(ctx context.Context, s *settings, client *clientv3.Client) error {
	return c.makeBy(ctx, s.await, client)
}

func (c *contact) makeBy(ctx context.Context, enter func(context.Context, *clientv3.Client) error, client *clientv3.Client) error {
	if c.made.Load() {
		return nil
	}
	if err := enter(ctx, client); err != nil {
		return err
	}
	c.made.Store(true)
	return nil
}

// complainEvery is the pause between two warnings that etcd does not answer.
const complainEvery = time.Minute

// await makes the first contact. Where etcd does not answer it tries again until
// ctx ends, and then returns ctx's cause.
func (s *settings) await(ctx context.Context, c *clientv3.Client) error {
	var said time.Time
	for pause := shortest; ; pause = min(2*pause, longest) {
		err := s.enter(ctx, c)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && !said.IsZero():
			s.logger.Info("etcd answers", "endpoints", c.Endpoints())
			return nil
		case !errors.Is(err, ErrUnreachable):
			return err
		case said.IsZero() || time.Since(said) >= complainEvery:
			said = time.Now()
			s.logger.Warn("etcd does not answer, to be tried again", "err", err)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

// enter makes the first contact: it finds out whether etcd answers, and whether
// the prefix is ours, which it becomes where it holds nothing. An error that may
// pass is tried again until the dial timeout is over; the result then wraps
// ErrUnreachable.
func (s *settings) enter(ctx context.Context, c *clientv3.Client) error {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var why error // what etcd has answered last
	for pause := shortest; ; pause = min(2*pause, longest) {
		format, err := s.format(limited, c)
		switch {
		case err == nil:
			return s.ours(format)
		case permanent(err):
			return fmt.Errorf("first contact with etcd at %v: %w", c.Endpoints(), err)
		case limited.Err() == nil:
			why = err
		}
		if !sleep(limited, pause) {
			break
		}
	}
	limit := fmt.Errorf("within %v: %w", s.timeout, context.Cause(limited))
	if ctx.Err() != nil {
		limit = context.Cause(ctx)
	} else if why == nil {
		why = s.reason(ctx, c)
	}
	if why != nil {
		return fmt.Errorf("%w: %v: %w: %w", ErrUnreachable, c.Endpoints(), limit, why)
	}
	return fmt.Errorf("%w: %v: %w", ErrUnreachable, c.Endpoints(), limit)
}

// permanent reports whether etcd has answered with an error that comes again
// however often it is asked: it does not know the user, or denies a right; or the
// client was closed.
func permanent(err error) bool {
	code := status.Code(err)
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = known.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented, codes.Canceled:
		// The client gets another token, after a restart of etcd for example.
		return !isAny(err, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision)
	}
	return false
}

// ours returns an error unless the value of the format key says that the prefix is
// ours; nil: there is no such key, and there are others.
func (s *settings) ours(format []byte) error {
	switch {
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

// errNotOurs says that the prefix, which was ours at the first contact, is not any
// more: etcd is another one, and holds nothing there. Who puts the first key under
// a prefix compares that it is ours: a key on one that is not would make it look like
// somebody else's, for all who come later.
var errNotOurs = errors.New("the prefix is not set up")
