package postgres_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

var errEnough = errors.New("enough")

// once returns the tasks that a query returns the first time.
func once(t *testing.T, source replica.Source) (tasks []replica.Task, err error) {
	err = source(t.Context(), func(told []replica.Task) error {
		tasks = told
		return errEnough
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return tasks, err
}

func TestQuery(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.Bouncer(t).URL(pgtest.User, "postgres"))
	for _, test := range []struct {
		sql  string
		want []replica.Task
		err  string
	}{
		{sql: "select 'a' union all select 'ü '", want: []replica.Task{{Name: "a"}, {Name: "ü "}}},
		{sql: "select 7", want: []replica.Task{{Name: "7"}}},
		{sql: "select 'f47ac10b-58cc-4372-a567-0e02b2c3d479'::uuid as instances", want: []replica.Task{{Name: "f47ac10b-58cc-4372-a567-0e02b2c3d479"}}},
		{sql: "select 'a' where false"},
		{sql: "select 'a', 3 as instances, 9223372036854775807 as version, '\\x00ff'::bytea as content", want: []replica.Task{
			{Name: "a", Instances: 3, Version: 1<<63 - 1, Content: []byte{0, 0xff}},
		}},
		{sql: `select 'a', 1::smallint as version, '{"k": 1}'::json as content`, want: []replica.Task{{Name: "a", Version: 1, Content: []byte(`{"k": 1}`)}}},
		{sql: "select 'a', null as content, null as instances, null as version", want: []replica.Task{{Name: "a"}}},
		{sql: "select 'a', array['gpu', '!spot'] as requires, -1 as max_per_zone, 1099511627776 as weight", want: []replica.Task{
			{Name: "a", Requires: []string{"gpu", "!spot"}, MaxPerZone: -1, Weight: 1 << 40},
		}},
		{sql: "select 'a', null::text[] as requires, null as max_per_zone, null as weight", want: []replica.Task{{Name: "a"}}},
		{sql: "select 'a', array[null]::text[] as requires", err: `row 1: column "requires"`},
		{sql: "select 'a', 7 as requires", err: `row 1: column "requires"`},
		{sql: "select null as id", err: `query of the tasks: row 1: the name, column "id", is null`},
		{sql: "select 'a', 'many' as instances", err: `row 1: column "instances"`},
		{sql: "select 'a', 1 as instance", err: `unknown column "instance": must be instances, content, version, requires, max_per_zone or weight`},
		{sql: "select", err: "no columns"},
		{sql: "select id from tenants", err: `relation "tenants" does not exist`},
		{sql: "delete from pg_class where false", err: "no columns"},
		{sql: "select 'a'; select 'b'", err: "cannot insert multiple commands"},
		{sql: "", err: "no columns"},
	} {
		t.Run(test.sql, func(t *testing.T) {
			tasks, err := once(t, postgres.Query(db, test.sql))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.NotContains(t, err.Error(), "\n")
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, tasks)
		})
	}
}

var manyRows = flag.Bool("query.many", false, "test the limits of a query with a million rows and 512 MiB, not with lower limits")

func TestQuery_ManyRows(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	rows, mib, limits := 10_000, 4, []postgres.QueryOption{postgres.WithLimits(10_000, 4<<20)}
	if *manyRows {
		rows, mib, limits = 1_000_000, 512, nil
	}
	query := func(sql string, args ...any) ([]replica.Task, error) {
		return once(t, postgres.Query(db, fmt.Sprintf(sql, args...), limits...))
	}
	tasks, err := query("select generate_series(1, %d)", rows)
	require.NoError(t, err)
	require.Len(t, tasks, rows)
	_, err = query("select generate_series(1, %d)", rows+1)
	require.ErrorContains(t, err, fmt.Sprintf("more than %d rows", rows))
	tasks, err = query("select i, repeat('x', 1 << 19) as content from generate_series(1, %d) i", 2*mib-1)
	require.NoError(t, err)
	require.Len(t, tasks, 2*mib-1)
	_, err = query("select i, repeat('x', 1 << 19) as content from generate_series(1, %d) i", 2*mib)
	require.ErrorContains(t, err, fmt.Sprintf("or %d MiB", mib))
	require.Zero(t, db.Stat().AcquiredConns())
}

func TestQuery_Polls(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	s.SQL("postgres", "create sequence runs")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	last := ""
	err := postgres.Query(db, "select nextval('runs')", postgres.WithInterval(time.Millisecond))(ctx, func(tasks []replica.Task) error {
		if last = tasks[0].Name; last == "3" {
			cancel()
		}
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, "3", last)

	_, err = once(t, postgres.Query(db, "select 1", postgres.WithInterval(0)))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
}
