package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/f8949c05/orchestrator/internal/backoff"
)

// WithListen lets replicas see changes at once. Otherwise they see them with their next
// heartbeat, after a twelfth of the lease at most. It takes one more connection for each
// replica, which waits for notifications (LISTEN). It must not lead through PgBouncer in
// transaction mode. Where the pool does not either, config may be pool.Config().ConnConfig.
// WithListen copies it.
//
// A connection that fails is made again after a pause of up to 30 seconds.
func WithListen(config *pgx.ConnConfig) Option {
	return func(t *Table) { t.listen = &listener{config: config.Copy()} }
}

// listener waits for notifications.
type listener struct {
	config *pgx.ConnConfig

	mu   sync.Mutex
	idle *pgx.Conn   // a connection that listens, between two calls of Wait
	stop func() bool // keeps the end of a context from closing idle
}

// Wait implements [replica.Waiter]. Without [WithListen] it returns when ctx ends.
// Otherwise it keeps its connection for the next call, until ctx ends.
func (t *Table) Wait(ctx context.Context) {
	if t.listen == nil {
		<-ctx.Done()
		return
	}
	t.listen.wait(ctx, t.name)
}

func (l *listener) wait(ctx context.Context, name string) {
	conn := l.take()
	if conn == nil {
		if conn = l.connect(ctx); conn != nil {
			l.keep(ctx, conn) // what has changed until now was not notified
		}
		return
	}
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			closeNow(conn)
			pause := backoff.Backoff{First: time.Second, Longest: time.Second}
			pause.Wait(ctx) // something may end each connection at once
			return
		}
		if n.Payload == name {
			l.keep(ctx, conn)
			return
		}
	}
}

// connect returns a connection that listens, or nil when ctx has ended.
func (l *listener) connect(ctx context.Context) *pgx.Conn {
	retry := backoff.Backoff{First: time.Second, Longest: 30 * time.Second}
	for ctx.Err() == nil {
		conn, err := pgx.ConnectConfig(ctx, l.config)
		if err == nil {
			if _, err = conn.Exec(ctx, "listen orchestrator"); err == nil {
				return conn
			}
			closeNow(conn)
		}
		retry.Wait(ctx)
	}
	return nil
}

// take returns the idle connection, or nil.
func (l *listener) take() *pgx.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	conn := l.idle
	if conn != nil {
		l.stop()
	}
	l.idle, l.stop = nil, nil
	return conn
}

// keep stores a connection for the next call of Wait, until ctx ends.
func (l *listener) keep(ctx context.Context, conn *pgx.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil { // another call has stored one
		closeNow(conn)
		return
	}
	l.idle = conn
	l.stop = context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.idle == conn {
			l.idle, l.stop = nil, nil
			closeNow(conn)
		}
	})
}

// closeNow closes a connection without waiting for the server.
func closeNow(conn *pgx.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = conn.Close(ended)
}
