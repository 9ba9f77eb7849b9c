package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/replica"
)

// maxBytes is what a query returns at most, so that a wrong one does not end the process: the
// next leader would run it too. A row counts rowBytes more.
const maxBytes, rowBytes = 1 << 28, 1 << 8

// Query returns a source that runs a query every ten seconds, and at once after
//
//	notify orchestrator_tasks
//
// in the same database, such as by
//
//	create function notify_tasks() returns trigger language plpgsql as
//	  $$ begin notify orchestrator_tasks; return null; end $$;
//	create trigger notify_tasks after insert or update or delete or truncate on tenants
//	  for each statement execute function notify_tasks();
//
// Each row is a task, and the first column its name, of any type. There may be columns of integers
//
//	instances     replica.Task.Instances; null is 1; a task with 0 is not wanted
//	input         replica.Task.Input; null is 0
//	max_per_zone  replica.Task.MaxPerZone; null is 0
//	weight        replica.Task.Weight; null: it has no weight; 0 counts as 1
//
// and one named requires of type text[]; no others. The query may take a minute, and return 256
// MiB, or a million short rows. After an error the tasks stay as they are, and the replica logs it.
// At the start of a replica a wrong column or statement, and a table or a right that is missing, is
// the error of its Run.
//
// While the source runs it has a connection of its own, as the pool would make it: where the
// replica leads, and once at the start of each. Through PgBouncer in transaction mode
// notifications do not arrive, so a change may take ten seconds.
func Query(pool *pgxpool.Pool, sql string) replica.Source {
	if pool == nil {
		return nil // an error of replica.New
	}
	return func(ctx context.Context, tell func([]replica.Task) error) error {
		err := poll(ctx, pool, sql, tell)
		switch {
		case err == nil || ctx.Err() != nil:
			return nil
		case strings.HasPrefix(codeOf(err), "42"): // syntax_error_or_access_rule_violation
			err = fmt.Errorf("%w: %w", replica.ErrInvalid, err)
		}
		return fmt.Errorf("query of the tasks: %w", oneLine{err})
	}
}

// poll runs a query, and tells of its result, until ctx ends.
func poll(ctx context.Context, pool *pgxpool.Pool, sql string, tell func([]replica.Task) error) error {
	conn, err := dial(ctx, own(pool))
	if err != nil {
		return err
	}
	defer closeNow(conn)
	if _, err = conn.Exec(ctx, "listen orchestrator_tasks", pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	for {
		began := time.Now()
		tasks, err := query(ctx, conn, sql)
		if err == nil {
			err = tell(tasks)
		}
		if err != nil {
			return err
		}
		next, cancel := context.WithDeadline(ctx, began.Add(10*time.Second))
		_, err = conn.WaitForNotification(next)
		cancel()
		if err != nil && next.Err() == nil {
			return err
		}
		next, cancel = context.WithDeadline(ctx, began.Add(100*time.Millisecond)) // at most ten in a second
		for err = nil; err == nil; {
			_, err = conn.WaitForNotification(next)
		}
		cancel()
	}
}

// query runs a query once.
func query(ctx context.Context, conn *pgx.Conn, sql string) ([]replica.Task, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("no result within a minute"))
	defer cancel()
	// PgBouncer in transaction mode has no prepared statements. Each value comes as text, so
	// a name may have any type.
	rows, err := conn.Query(ctx, sql, pgx.QueryExecModeExec, pgx.QueryResultFormats{pgx.TextFormatCode})
	if err != nil {
		return nil, err
	}
	if err = checkColumns(rows.FieldDescriptions()); err != nil {
		rows.Close()
		return nil, cmp.Or(rows.Err(), err)
	}
	size := 0
	tasks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (replica.Task, error) {
		for _, v := range row.RawValues() {
			size += len(v)
		}
		if size += rowBytes; size > maxBytes {
			return replica.Task{}, fmt.Errorf("more than %d MiB, where a row counts %d bytes more than its values", maxBytes>>20, rowBytes)
		}
		return scan(row, conn.TypeMap())
	})
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return tasks, err
}

// checkColumns returns an error that wraps replica.ErrInvalid if a result cannot be tasks.
func checkColumns(columns []pgconn.FieldDescription) error {
	if len(columns) == 0 {
		return fmt.Errorf("%w: the statement returns no columns", replica.ErrInvalid)
	}
	for _, c := range columns[1:] {
		types := []uint32{pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID}
		if c.Name == "requires" {
			types = []uint32{pgtype.TextArrayOID, pgtype.VarcharArrayOID}
		} else if !set(new(replica.Task), c.Name, 0) {
			return fmt.Errorf("%w: unknown column %q: must be instances, input, max_per_zone, weight or requires", replica.ErrInvalid, c.Name)
		}
		if !slices.Contains(types, c.DataTypeOID) {
			return fmt.Errorf("%w: column %q has another type than an integer, or text[] for requires", replica.ErrInvalid, c.Name)
		}
	}
	return nil
}

// scan returns the task of a row. One without a name, or with a label that is null, is a bad row,
// which the leader leaves out.
func scan(row pgx.CollectableRow, types *pgtype.Map) (task replica.Task, err error) {
	values := row.RawValues()
	task.Name = string(values[0])
	for i, c := range row.FieldDescriptions() {
		if i == 0 || values[i] == nil || err != nil {
			continue
		}
		var n int64
		if c.Name != "requires" {
			n, err = strconv.ParseInt(string(values[i]), 10, 64)
			set(&task, c.Name, n)
			continue
		}
		var labels []*string
		err = types.Scan(c.DataTypeOID, c.Format, values[i], &labels)
		for _, l := range labels {
			task.Requires = append(task.Requires, *cmp.Or(l, new(string)))
		}
	}
	return task, err
}

// set sets what a column of integers is for, and reports whether there is such a column.
func set(task *replica.Task, column string, n int64) bool {
	switch column {
	case "instances":
		task.Instances = cmp.Or(int(n), -1)
	case "input":
		task.Input = n
	case "max_per_zone":
		task.MaxPerZone = int(n)
	case "weight":
		task.Weight = cmp.Or(n, 1)
	default:
		return false
	}
	return true
}
