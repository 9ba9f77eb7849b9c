package manager

import (
	"context"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"

	"google.golang.org/grpc"
)

// underWay counts the calls that a server has not answered yet.
type callCounter struct {
	mu    sync.Mutex
	n     int
	ended chan struct{} // closed when n next becomes 0; nil: nothing waits
}

// count is an interceptor that counts a call.
func (u *callCounter) count(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	u.mu.Lock()
	u.n++
	u.mu.Unlock()
	defer func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.n--
		if u.n == 0 && u.ended != nil {
			close(u.ended)
			u.ended = nil
		}
	}()
	return handle(ctx, req)
}

// none returns a channel that is closed as soon as no call is under way.
func (u *callCounter) none() <-chan struct{} {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.ended == nil {
		u.ended = make(chan struct{})
	}
	ended := u.ended
	if u.n == 0 {
		close(u.ended)
		u.ended = nil
	}
	return ended
}

// settle waits until no call is under way, for at most peer.Grace. The server continues
// to serve.
func (u *callCounter) settle() {
	timer := time.NewTimer(peer.Grace)
	defer timer.Stop()
	select {
	case <-u.none():
	case <-timer.C:
	}
}
