package etcd

// The first contact of what has no run of its own: once, by whichever call comes
// first.

import (
	"context"
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
