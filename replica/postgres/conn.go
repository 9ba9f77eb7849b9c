package postgres

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/internal/ascii"
	"github.com/f8949c05/orchestrator/replica"
)

// New returns the table with the given name, from 1 to 200 bytes, in the database of the pool. All
// replicas of a service give the same name, others in the same database another one. Replicas do
// not share a Table. A bad argument is an error of all its calls.
//
// New does not connect. The table makes two connections of its own, as the pool would: one for its
// calls, and one that waits for changes. So tasks that use up the pool cost no lease.
func New(pool *pgxpool.Pool, name string, opts ...Option) *Table {
	t := &Table{name: name, log: slog.Default(), known: make(map[uint64]known)}
	bad := pool == nil || name == "" || len(name) > 200 || slices.ContainsFunc(opts, func(o Option) bool { return o == nil })
	for _, opt := range opts {
		if !bad {
			opt(t)
		}
	}
	if bad || t.log == nil {
		t.err = fmt.Errorf("%w: it needs a pool, a name of 1 to 200 bytes, a logger and no nil option", replica.ErrInvalid)
		return t
	}
	t.config = own(pool)
	t.calls, t.err = pgxpool.NewWithConfig(context.Background(), t.config.Copy())
	return t
}

// own returns the configuration for a connection besides a pool, with the pool's hooks.
func own(pool *pgxpool.Pool) *pgxpool.Config {
	config := pool.Config()
	// One is used. If it is silent, pgx takes 15 seconds to close it, in which four calls time out.
	config.MaxConns, config.MinConns, config.MinIdleConns, config.MaxConnIdleTime = 5, 0, 0, config.HealthCheckPeriod // a minute
	params := config.ConnConfig.RuntimeParams
	params["standard_conforming_strings"], params["client_encoding"] = "on", "UTF8" // pgx reads no other
	return config
}

// dial makes a connection that belongs to no pool.
func dial(ctx context.Context, config *pgxpool.Config) (*pgx.Conn, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config.Copy()) // which calls the hooks
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Hijack(), nil
}

// Option is an option of [New].
type Option func(*Table)

// WithSchema sets the schema of the tables, which must exist. The default is the first one of
// the search_path that has them, or else the first in which the user may create them.
func WithSchema(name string) Option {
	return func(t *Table) { t.schema = pgx.Identifier{name}.Sanitize() }
}

// WithLogger sets the logger. The default is slog.Default(). A table logs a line when it has
// connected, and one where notifications do not arrive.
func WithLogger(l *slog.Logger) Option { return func(t *Table) { t.log = l } }

// Close closes the connections. It waits until [Table.Wait] has returned.
func (t *Table) Close() error {
	t.listen.mu.Lock()
	defer t.listen.mu.Unlock()
	t.listen.drop()
	if t.calls != nil {
		t.calls.Close()
	}
	return nil
}

// find returns the schema of the tables.
func (t *Table) find(ctx context.Context) (string, error) {
	t.mu.Lock()
	schema := t.schema
	t.mu.Unlock()
	if schema != "" || t.err != nil {
		return schema, t.err
	}
	var other string // that has the tables, though none of the search_path does
	err := t.calls.QueryRow(ctx, `select quote_ident(n), coalesce((select min(relnamespace::regnamespace::text) from pg_class
			where relname = 'replica_tables' and relkind = 'r' and to_regclass(quote_ident(n) || '.replica_tables') is null), '')
		from unnest(current_schemas(false)) with ordinality s (n, i) where n !~ '^pg_'
		order by to_regclass(quote_ident(n) || '.replica_tables') is null, not has_schema_privilege(n, 'create'), i limit 1`,
		pgx.QueryExecModeSimpleProtocol).Scan(&schema, &other)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errors.New("the search_path has no schema that the user may use: give WithSchema")
	} else if err == nil && other != "" {
		err = fmt.Errorf("schema %s, which is not in the search_path, has the tables: give it or %s to WithSchema", other, schema)
	}
	if err != nil {
		return "", err
	}
	t.log.Info("replicas use the database", "table", t.name, "schema", schema)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.schema = schema
	return schema, nil
}

// call runs a statement with the schema in place of %s, the table's name as $1 and doc as $2. It
// creates the tables if they do not exist. A nil answer is a null.
func (t *Table) call(ctx context.Context, sql string, doc any, args ...any) (a *answer, err error) {
	text, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	schema, err := t.find(ctx)
	if err != nil {
		return nil, t.explain(ctx, "", err)
	}
	// The simple protocol sends one message, which the server has completely or not at all. It
	// also lets PgBouncer give each call another connection.
	args = append([]any{pgx.QueryExecModeSimpleProtocol, ascii.Escape(t.name), string(text)}, args...)
	query := func() error { return t.calls.QueryRow(ctx, fmt.Sprintf(sql, schema), args...).Scan(&a) }
	err = query()
	if slices.Contains([]string{"42883", "42P01", "3F000"}, codeOf(err)) { // undefined_function, undefined_table, invalid_schema_name
		// Without the lock installations fail that begin at the same time. Its key is any number.
		_, err = t.calls.Exec(ctx, "select pg_advisory_xact_lock(8174312689); "+inSchema(schema), pgx.QueryExecModeSimpleProtocol)
		if err == nil {
			err = query()
		}
	}
	if err != nil {
		return nil, t.explain(ctx, schema, err)
	}
	return a, nil
}

//go:embed schema.sql
var text string

// Schema returns the statements that create in a schema what the first call creates if it does
// not exist: tables, functions and procedures. It is for databases in which the user of the pool
// may not create them.
func Schema(name string) string { return inSchema(pgx.Identifier{name}.Sanitize()) }

func inSchema(quoted string) string { return strings.ReplaceAll(text, "replica_", quoted+".replica_") }

// codeOf returns the code of an error of PostgreSQL, or "".
func codeOf(err error) string {
	if pg, ok := errors.AsType[*pgconn.PgError](err); ok {
		return pg.Code
	}
	return ""
}

// explain returns err in one line that says what to do.
func (t *Table) explain(ctx context.Context, schema string, err error) error {
	err = oneLine{err}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	switch codeOf(err) {
	case "25006", "55000": // read_only_sql_transaction, object_not_in_prerequisite_state
		return fmt.Errorf("no writes: connect to the primary, for instance with target_session_attrs=read-write, or reset default_transaction_read_only: %w", err)
	case "55P03": // lock_not_available
		return fmt.Errorf("another transaction has locked the table: %w", err)
	case "42601", "42703", "42804", "42809": // the tables have other columns or types, or are none
		return fmt.Errorf("%w: schema %s has a table or a procedure of the same name, give another one to WithSchema: %w", replica.ErrForeign, schema, err)
	case "42501": // insufficient_privilege
		return fmt.Errorf("the user may not create or use the tables: let another one apply the text of postgres.Schema(%q), and then "+
			"grant usage on schema %[2]s to %[3]q; grant select, insert, update, delete on all tables in schema %[2]s to %[3]q: %[4]w",
			strings.Trim(schema, `"`), schema, t.config.ConnConfig.User, err)
	}
	return fmt.Errorf("%s: %w", cmp.Or(schema, "connect"), err)
}

// oneLine is an error whose text has no line breaks. Those of pgx have one for each address
// that was tried.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

func (e oneLine) Unwrap() error { return e.error }
