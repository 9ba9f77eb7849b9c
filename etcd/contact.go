package etcd

// The first contact of what has no run of its own: once, by whichever call comes
// first.

import (
	"context"
	"errors"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// contact remembers that the first contact has succeeded. The zero contact has
// not been made.
type contact struct{ made atomic.Bool }

// enter makes the contact unless it was made. Several calls may make it at once,
// which does no harm.
func (c *contact) enter(ctx context.Context, s *settings, client *clientv3.Client) error {
	if c.made.Load() {
		return nil
	}
	if err := s.enter(ctx, client); err != nil {
		return err
	}
	c.made.Store(true)
	return nil
}

// errNotOurs says that the prefix, which was ours at the first contact, is not any
// more: etcd is another one, and holds nothing there. Who puts the first key under
// a prefix compares that it is ours: a key on one that is not would make it look like
// somebody else's, for all who come later.
var errNotOurs = errors.New("the prefix is not set up")
