package postgres

import (
	"context"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
)

// WithListen lets replicas see changes at once. Otherwise they see them with their next
// heartbeat, after a twelfth of the lease at most. It takes one more connection for each
// replica, which waits for notifications (LISTEN). It must not lead through PgBouncer in
// transaction mode. Where the pool does not either, config may be pool.Config().ConnConfig.
// WithListen copies it.
//
// The replica logs a connection that fails, and makes another one after a pause of up to 30
// seconds.
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
func (t *Table) Wait(ctx context.Context) error {
	if t.listen == nil {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	if err := t.listen.wait(ctx, t.name); err != nil {
		return fmt.Errorf("listen for changes of table %.100q: %w", t.name, oneLine{err})
	}
	return nil
}

func (l *listener) wait(ctx context.Context, name string) error {
	conn := l.take()
	listens := conn != nil
	if !listens {
		var err error
		if conn, err = pgx.ConnectConfig(ctx, l.config); err != nil {
			return err
		}
		if _, err = conn.Exec(ctx, "listen orchestrator"); err != nil {
			closeNow(conn)
			return err
		}
	}
	for listens { // otherwise what has changed until now was not notified
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			closeNow(conn)
			return err
		}
		if n.Payload == name {
			break
		}
	}
	l.keep(ctx, conn)
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
