package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
)

// longestQuery bounds the time that a query takes.
const longestQuery = time.Minute

// Query returns a source that runs a query every 10 seconds, for at most a minute. Each row
// is a task, and the first column its name, of any type. There may be columns
//
//	instances     replica.Task.Instances; null is 1
//	content       replica.Task.Content; null is empty
//	version       replica.Task.Version; null is 0
//	requires      replica.Task.Requires, of type text[]; null is empty
//	max_per_zone  replica.Task.MaxPerZone; null is 0
//	weight        replica.Task.Weight; null is 0
//
// and no others. The query must return neither a name that is null, empty or returned
// before, nor more than a million rows or 512 MiB. Otherwise the tasks stay as they are, and
// the replica logs the error.
func Query(pool *pgxpool.Pool, sql string, opts ...QueryOption) replica.Source {
	q := query{pool: pool, sql: sql, interval: 10 * time.Second, maxRows: 1_000_000, maxBytes: 1 << 29}
	for _, opt := range opts {
		opt(&q)
	}
	if q.interval <= 0 {
		return func(context.Context, func([]replica.Task) error) error {
			return fmt.Errorf("query of the tasks: %w: the interval is %v: must be positive", orchestrator.ErrInvalid, q.interval)
		}
	}
	return replica.Poll(q.interval, q.tasks)
}

// QueryOption is an option of [Query].
type QueryOption func(*query)

// WithInterval sets how often the query runs. The default is 10 seconds.
func WithInterval(d time.Duration) QueryOption {
	return func(q *query) { q.interval = d }
}

// query is a query of tasks.
type query struct {
	pool     *pgxpool.Pool
	sql      string
	interval time.Duration

	// maxRows and maxBytes bound what the query returns, so that a wrong one does not end
	// the process: the next leader would run it too.
	maxRows, maxBytes int
}

// tasks runs the query once.
func (q *query) tasks(ctx context.Context) ([]replica.Task, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, longestQuery, fmt.Errorf("no result within %v", longestQuery))
	defer cancel()
	tasks, err := q.run(ctx)
	switch {
	case err == nil:
		return tasks, nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return nil, fmt.Errorf("query of the tasks: %w", oneLine{err})
}

func (q *query) run(ctx context.Context) ([]replica.Task, error) {
	// PgBouncer in transaction mode has no prepared statements. Each value comes as text, so
	// a name may have any type.
	rows, err := q.pool.Query(ctx, q.sql, pgx.QueryExecModeExec, pgx.QueryResultFormats{pgx.TextFormatCode})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns := len(rows.FieldDescriptions()) // after the last row the connection is another caller's
	var tasks []replica.Task
	size := 0
	for rows.Next() {
		values := rows.RawValues()
		for _, v := range values {
			size += len(v)
		}
		if len(tasks) == q.maxRows || size > q.maxBytes {
			return nil, fmt.Errorf("more than %d rows or %d MiB", q.maxRows, q.maxBytes>>20)
		}
		task, err := scan(rows, values)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", len(tasks)+1, err)
		}
		tasks = append(tasks, task)
	}
	if rows.Err() == nil && columns == 0 {
		return nil, errors.New("the statement returns no columns")
	}
	return tasks, rows.Err()
}

// scan returns the task of a row.
func scan(rows pgx.Rows, values [][]byte) (replica.Task, error) {
	var task replica.Task
	for i, field := range rows.FieldDescriptions() {
		v := values[i]
		if v == nil {
			if i == 0 {
				return task, fmt.Errorf("the name, column %q, is null", field.Name)
			}
			continue
		}
		var err error
		switch {
		case i == 0:
			task.Name = string(v)
		case field.Name == "instances":
			task.Instances, err = strconv.Atoi(string(v))
		case field.Name == "version":
			task.Version, err = strconv.ParseInt(string(v), 10, 64)
		case field.Name == "max_per_zone":
			task.MaxPerZone, err = strconv.Atoi(string(v))
		case field.Name == "weight":
			task.Weight, err = strconv.ParseInt(string(v), 10, 64)
		case field.Name == "requires":
			err = rows.Conn().TypeMap().Scan(field.DataTypeOID, field.Format, v, &task.Requires)
		case field.Name == "content" && field.DataTypeOID == pgtype.ByteaOID:
			err = rows.Conn().TypeMap().Scan(field.DataTypeOID, field.Format, v, &task.Content)
		case field.Name == "content":
			task.Content = append([]byte(nil), v...)
		default:
			return task, fmt.Errorf("unknown column %q: must be instances, content, version, requires, max_per_zone or weight", field.Name)
		}
		if err != nil {
			return task, fmt.Errorf("column %q: %w", field.Name, err)
		}
	}
	return task, nil
}
