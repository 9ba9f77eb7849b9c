package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

// Table is a [replica.Backend] and a [replica.Waiter] in a database. It is safe for
// concurrent use.
type Table struct {
	pool   *pgxpool.Pool
	name   string
	schema string
	listen *listener // nil: without LISTEN

	mu   sync.Mutex
	last answer // without its Members
}

var (
	_ replica.Backend = (*Table)(nil)
	_ replica.Waiter  = (*Table)(nil)
)

// answer is the result of a Sync.
type answer struct {
	replica.View
	// Transaction of the Sync. It rises with each, unless the server is rolled back.
	Transaction uint64 `json:",string"`
}

// maxName bounds the name of a table. PostgreSQL bounds keys and notifications.
const maxName = 1024

// New returns the table with the given name in the database of the pool. All replicas of a
// service give the same name; others in the same database give another. It has from 1 to
// 1,024 bytes of UTF-8 without a zero.
//
// New does not connect, and the caller closes the pool. Each Sync needs a connection of the
// pool for about a millisecond. If tasks may keep all of them for longer than a quarter of
// the lease, give the table a pool of its own.
func New(pool *pgxpool.Pool, name string, opts ...Option) *Table {
	t := &Table{pool: pool, name: name, schema: schema}
	for _, opt := range opts {
		opt(t)
	}
	return t
}

// Option is an option of [New].
type Option func(*Table)

// Sync implements [replica.Backend]. The first one creates what [Schema] has, if it does
// not exist. Errors other than those of the interface say in one line what to do.
func (t *Table) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	v, err := t.sync(ctx, u)
	if err != nil {
		return replica.View{}, fmt.Errorf("sync table %.100q: %w", t.name, err)
	}
	return v, nil
}

func (t *Table) sync(ctx context.Context, u replica.Update) (replica.View, error) {
	if ctx.Err() != nil {
		return replica.View{}, context.Cause(ctx)
	}
	if t.pool == nil || t.name == "" || len(t.name) > maxName || !utf8.ValidString(t.name) || strings.ContainsRune(t.name, 0) {
		return replica.View{}, fmt.Errorf("%w: it needs a pool, and a name of 1 to %d bytes of UTF-8 without a zero", orchestrator.ErrInvalid, maxName)
	}
	if err := u.Check(); err != nil {
		return replica.View{}, err
	}
	a, err := t.call(ctx, u)
	if isCode(err, undefinedFunction, undefinedTable) {
		if err = t.install(ctx); err != nil {
			return replica.View{}, t.explain(ctx, err, "the tables do not exist, or not all of them, and the user may not create them: "+
				"let another one apply postgres.Schema, and then "+t.grant())
		}
		a, err = t.call(ctx, u)
	}
	if err != nil {
		return replica.View{}, t.explain(ctx, err, t.grant())
	}
	if a == nil {
		return replica.View{}, replica.ErrRetired
	}
	t.remember(*a)
	return a.View, nil
}

// remember keeps the highest transaction of the present server.
func (t *Table) remember(a answer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if a.Server != t.last.Server || a.Transaction > t.last.Transaction {
		a.Members = nil
		t.last = a
	}
}

// call calls the procedure. The answer is nil if the member is retired.
func (t *Table) call(ctx context.Context, u replica.Update) (*answer, error) {
	record, err := json.Marshal(u.Self)
	if err != nil {
		return nil, err
	}
	evict := slices.Sorted(maps.Keys(u.Evict))
	heartbeats := make([]uint64, len(evict))
	for i, id := range evict {
		heartbeats[i] = u.Evict[id]
	}
	t.mu.Lock()
	last := t.last
	t.mu.Unlock()
	// The simple protocol sends one message, which the server has completely or not at
	// all. Of the extended protocol's several, a cut could let through only those that
	// take the lock. It also lets PgBouncer give each Sync another connection.
	conn, err := t.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	var raw []byte
	err = conn.QueryRow(ctx, "call orchestrator_sync_1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, null)",
		pgx.QueryExecModeSimpleProtocol,
		t.name, int64(u.Self.ID), int64(u.Self.Heartbeat), int64(u.Self.Lease), u.Self.Draining, u.Self.Passive, string(record),
		signed(u.Left), signed(evict), signed(heartbeats), signed(u.Retire),
		int64(u.Campaign), int64(u.Epoch), u.Confirm, last.Server, strconv.FormatUint(last.Transaction, 10),
		patience(ctx).Milliseconds()).Scan(&raw)
	if err != nil || raw == nil {
		return nil, err
	}
	a := new(answer)
	if err := json.Unmarshal(raw, a); err != nil {
		return nil, fmt.Errorf("the result of orchestrator_sync_1: %w", err)
	}
	return a, nil
}

// patience returns how long a Sync may wait for a lock: half of what its context leaves, from
// a millisecond to two seconds. The server must answer before the context ends, because pgx
// then closes the connection. On a new one PostgreSQL plans each statement anew, while the
// lock is held. On a busy machine Syncs that only give up after the context would so make
// each other slower, until none succeeds.
func patience(ctx context.Context) time.Duration {
	const longest = 2 * time.Second
	deadline, ok := ctx.Deadline()
	if !ok {
		return longest
	}
	return min(max(time.Until(deadline)/2, time.Millisecond), longest)
}

// signed returns numbers as PostgreSQL has them. Those above 2⁶³-1, which no Sync has
// published, become negative, and match no row.
func signed(numbers []uint64) []int64 {
	list := make([]int64, len(numbers))
	for i, n := range numbers {
		list[i] = int64(n)
	}
	return list
}
