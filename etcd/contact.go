package etcd

// The first contact of what has no run of its own: once, by whichever call comes
// first.

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// reason asks once more, without waiting for a connection, and returns why there is
// none; nil where that is not known. The calls of etcd's client wait for one, and
// say only that their time is up: not that a certificate is refused, say.
func (s *settings) reason(ctx context.Context, c *clientv3.Client) error {
	conn := c.ActiveConnection()
	if conn == nil {
		return nil // a client that was made of something else
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, time.Second))
	defer cancel()
	_, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(s.layout.Format()), Serializable: true},
		grpc.WaitForReady(false))
	if status.Code(err) != codes.Unavailable {
		return nil
	}
	return errors.New(status.Convert(err).Message())
}

// errNotOurs says that the prefix, which was ours at the first contact, is not any
// more: etcd is another one, and holds nothing there. Who puts the first key under
// a prefix compares that it is ours: a key on one that is not would make it look like
// somebody else's, for all who come later.
var errNotOurs = errors.New("the prefix is not set up")
