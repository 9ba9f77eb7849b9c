package postgres

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/f8949c05/orchestrator/replica"
)

//go:embed schema.sql
var schema string

// Schema returns what the first Sync creates if it does not exist: two tables, in the first
// schema of the user's search_path, and a procedure. It is for databases in which the user
// of the pool may not create them: there a user who may applies it, for instance with psql,
// and then grants the user of the pool select, insert, update and delete on both tables.
func Schema() string { return schema }

// installing is the key of a lock that orders installations. They would otherwise fail when
// several begin at the same time.
const installing = 0x6f7263686573

// install creates what is missing, in one transaction.
func (t *Table) install(ctx context.Context) error {
	if err := t.checkColumns(ctx); err != nil {
		return err
	}
	_, err := t.pool.Exec(ctx, fmt.Sprintf("select pg_advisory_xact_lock(%d);\n%s", installing, t.schema), pgx.QueryExecModeSimpleProtocol)
	return err
}

// grant returns the statement that gives the user of the pool what a Sync needs.
func (t *Table) grant() string {
	return fmt.Sprintf("grant select, insert, update, delete on orchestrator_tables, orchestrator_members to %q", t.pool.Config().ConnConfig.User)
}

// checkColumns returns an error that wraps replica.ErrForeign if one of the tables exists
// with other columns than those of the schema.
func (t *Table) checkColumns(ctx context.Context) error {
	for _, want := range []struct{ table, columns string }{
		{"orchestrator_tables", "name text, server uuid, confirmed boolean, epoch bigint, leader bigint, lease bigint, members bigint[], origin text, written xid8"},
		{"orchestrator_members", "name text, id bigint, heartbeat bigint, draining boolean, passive boolean, retired boolean, record json, written xid8"},
	} {
		var columns string
		err := t.pool.QueryRow(ctx, `select coalesce(string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' order by attnum), '')
			from pg_attribute where attrelid = to_regclass($1) and attnum > 0 and not attisdropped`,
			pgx.QueryExecModeSimpleProtocol, want.table).Scan(&columns)
		if err != nil {
			return err
		}
		if columns != "" && columns != want.columns {
			return fmt.Errorf("%w: %s has the columns %.500s; want %s", replica.ErrForeign, want.table, columns, want.columns)
		}
	}
	return nil
}

// The codes of errors that PostgreSQL reports.
const (
	readOnly              = "25006"
	insufficientPrivilege = "42501"
	undefinedFunction     = "42883"
	undefinedTable        = "42P01"
	lockNotAvailable      = "55P03"
)

func isCode(err error, codes ...string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && slices.Contains(codes, pg.Code)
}

// explain returns err in one line that says what to do; forbidden says it if the user lacks
// a right.
func (t *Table) explain(ctx context.Context, err error, forbidden string) error {
	switch {
	case errors.Is(err, replica.ErrForeign):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), oneLine{err})
	case isCode(err, readOnly):
		return fmt.Errorf("the server does not accept writes: connect to the primary, for instance with target_session_attrs=read-write: %w", err)
	case isCode(err, lockNotAvailable):
		return fmt.Errorf("another transaction has locked the table: %w", err)
	case isCode(err, insufficientPrivilege):
		return fmt.Errorf("%s: %w", forbidden, err)
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42") { // syntax error or access rule violation
		if foreign := t.checkColumns(ctx); errors.Is(foreign, replica.ErrForeign) {
			return foreign
		}
	}
	return oneLine{err}
}

// oneLine is an error whose text has no line breaks. Those of pgx have one for each address
// that was tried.
type oneLine struct{ error }

func (e oneLine) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }

func (e oneLine) Unwrap() error { return e.error }
