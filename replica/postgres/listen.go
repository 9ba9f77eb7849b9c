package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// errDeaf reports that notifications do not arrive, as through PgBouncer in transaction mode.
var errDeaf = errors.New("notifications do not arrive")

// listener is the connection that waits for notifications. mu is held during each Wait.
type listener struct {
	mu   sync.Mutex
	conn *pgx.Conn // nil: there is none
	idle bool      // a whole Wait has heard nothing: the connection may be cut
	deaf int64     // connections of the pool for calls when the last probe was not heard; 0: it was
}

// Wait is that of replica.Waiter. Only one can be under way.
func (t *Table) Wait(ctx context.Context, q replica.Query) error {
	l := &t.listen
	l.mu.Lock()
	defer l.mu.Unlock()
	err := t.err
	if err == nil {
		err = t.hear(ctx, q)
	}
	if err == nil || t.err != nil || ctx.Err() != nil && l.conn != nil {
		return err
	}
	l.drop()
	return fmt.Errorf("listen for changes of table %.100q: %v", t.name, oneLine{err}) //nolint:errorlint // a timeout while it connects is none of Wait
}

// hear waits for a notification that concerns a query.
func (t *Table) hear(ctx context.Context, q replica.Query) error {
	l := &t.listen
	if l.conn == nil {
		return t.connect(ctx) // what has changed meanwhile was not told
	}
	if l.idle {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if _, err := l.conn.Exec(short, "select 1", pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	var since uint64
	_, _ = fmt.Sscan(q.Since, &since)
	for {
		n, err := l.conn.WaitForNotification(ctx)
		if l.idle = err != nil; err != nil {
			return err
		}
		number, rest, _ := strings.Cut(n.Payload, " ")
		ids, name, _ := strings.Cut(rest, " ")
		revision, _ := strconv.ParseUint(number, 10, 64) // 0 if the text is none of ours
		if revision > since && name == ascii.Escape(t.name) && (ids == "*" || slices.Contains(strings.Split(ids, ","), fmt.Sprint(q.Self))) {
			return nil
		}
	}
}

// connect makes the connection, and finds out whether it hears what the one for calls sends to
// a channel of its own.
func (t *Table) connect(ctx context.Context) error {
	l := &t.listen
	if l.deaf > 0 && l.deaf == t.calls.Stat().NewConnsCount() {
		return errDeaf // it is the same way to the server
	}
	conn, err := dial(ctx, t.config)
	if err != nil {
		return err
	}
	l.conn = conn
	probe := "orchestrator_" + strings.ToLower(rand.Text())
	if _, err = l.conn.Exec(ctx, "listen orchestrator; listen "+probe, pgx.QueryExecModeSimpleProtocol); err == nil {
		_, err = t.calls.Exec(ctx, "notify "+probe, pgx.QueryExecModeSimpleProtocol)
	}
	probing, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for n := new(pgconn.Notification); err == nil && n.Channel != probe; {
		n, err = l.conn.WaitForNotification(probing)
	}
	if l.deaf, l.idle = 0, false; err != nil && ctx.Err() == nil && probing.Err() != nil {
		err, l.deaf = errDeaf, t.calls.Stat().NewConnsCount()
		t.log.Info("notifications of the database do not arrive, as through a pooler: replicas read at intervals", "table", t.name)
	}
	if err != nil {
		l.drop()
	}
	return err
}

// drop closes the connection.
func (l *listener) drop() {
	closeNow(l.conn)
	l.conn = nil
}

// closeNow closes a connection, if there is one, without waiting for the server.
func closeNow(conn *pgx.Conn) {
	ended, cancel := context.WithCancel(context.Background())
	if cancel(); conn != nil {
		_ = conn.Close(ended)
	}
}
