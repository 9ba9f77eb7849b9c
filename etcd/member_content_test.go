package etcd

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// stream is a watcher that records whether its watches have ended when it is closed.
type stream struct {
	mu     sync.Mutex
	begun  chan struct{} // receives a value for each watch
	open   []context.Context
	ended  int // watches that had ended before Close
	closed chan struct{}
}

func (s *stream) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = append(s.open, ctx)
	s.begun <- struct{}{}
	return make(chan clientv3.WatchResponse)
}

func (*stream) RequestProgress(context.Context) error { return errors.ErrUnsupported }

func (s *stream) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ctx := range s.open {
		if ctx.Err() != nil {
			s.ended++
		}
	}
	close(s.closed)
	return nil
}

// When a membership ends, the stream of its content watches is closed before any of
// them is cancelled, because there may be tens of thousands.
func TestW7_WatchesEndWithTheirStream(t *testing.T) {
	const tasks = 100
	layout, err := keys.New("/work/")
	require.NoError(t, err)
	ctx, end := context.WithCancel(t.Context())
	c := newContents(ctx, &clientv3.Client{}, identity{layout: layout}, slog.New(slog.DiscardHandler), nil, 0)
	s := &stream{begun: make(chan struct{}, tasks), closed: make(chan struct{})}
	c.watcher = s
	var followed sync.WaitGroup
	for range tasks {
		followed.Go(func() { c.follow(ctx, "t", content{}) })
	}
	for range tasks {
		<-s.begun
	}
	end()
	followed.Wait()
	<-s.closed
	require.Zero(t, s.ended)

	// A single task that leaves ends only its own watch.
	c = newContents(t.Context(), &clientv3.Client{}, identity{layout: layout}, slog.New(slog.DiscardHandler), nil, 0)
	s = &stream{begun: make(chan struct{}, 1), closed: make(chan struct{})}
	c.watcher = s
	one, quit := context.WithCancel(t.Context())
	followed.Go(func() { c.follow(one, "t", content{}) })
	<-s.begun
	quit()
	followed.Wait()
	require.Error(t, s.open[0].Err())
	select {
	case <-s.closed:
		require.Fail(t, "the stream was closed for all tasks")
	default:
	}
	c.close()
}
