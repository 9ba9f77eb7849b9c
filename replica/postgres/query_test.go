package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

var errEnough = errors.New("enough")

// once returns the tasks that a source tells first.
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
		sql     string
		want    []replica.Task
		err     string
		invalid bool
	}{
		{sql: "select 'a' union all select 'ü '", want: []replica.Task{{Name: "a"}, {Name: "ü "}}},
		{sql: "select 7", want: []replica.Task{{Name: "7"}}},
		{sql: "select 'f47ac10b-58cc-4372-a567-0e02b2c3d479'::uuid as instances", want: []replica.Task{{Name: "f47ac10b-58cc-4372-a567-0e02b2c3d479"}}},
		{sql: "select 'a' where false", want: []replica.Task{}},
		{sql: "select null as id, 3 as instances", want: []replica.Task{{Instances: 3}}}, // a bad row
		{sql: "select 'a', 3 as instances, 9223372036854775807 as input", want: []replica.Task{{Name: "a", Instances: 3, Input: 1<<63 - 1}}},
		// T-k: 0 is not wanted, and null is one.
		{sql: "select 'a', 0 as instances union all select 'b', null", want: []replica.Task{{Name: "a", Instances: -1}, {Name: "b"}}},
		{sql: "select 'a', 0 as weight union all select 'b', null", want: []replica.Task{{Name: "a", Weight: 1}, {Name: "b"}}},
		{sql: "select 'a', array['gpu', '!spot'] as requires, -1 as max_per_zone, 1099511627776 as weight", want: []replica.Task{
			{Name: "a", Requires: []string{"gpu", "!spot"}, MaxPerZone: -1, Weight: 1 << 40},
		}},
		{sql: "select 'a', null::text[] as requires, null::int as max_per_zone, 1::smallint as input", want: []replica.Task{{Name: "a", Input: 1}}},
		{sql: "select 'a', array[null]::text[] as requires", want: []replica.Task{{Name: "a", Requires: []string{""}}}}, // a bad row
		{sql: "select 'a', 7 as requires", err: `column "requires"`, invalid: true},
		{sql: "select 'a', 'many' as instances", err: `column "instances"`, invalid: true},
		{sql: "select 'a', 1 as instance", err: `unknown column "instance": must be instances, input, max_per_zone, weight or requires`, invalid: true},
		{sql: "select", err: "no columns", invalid: true},
		{sql: "select id from tenants", err: `relation "tenants" does not exist`, invalid: true},
		{sql: "delete from pg_class where false", err: "no columns", invalid: true},
		{sql: "selct 1", err: "syntax error", invalid: true},
		{sql: "select 'a'; select 'b'", err: "cannot insert multiple commands", invalid: true},
		{sql: "", err: "no columns", invalid: true},
		{sql: "select 1/0", err: "division by zero"},
		{sql: "select generate_series(1, 1100000)", err: "more than 256 MiB"},
		{sql: "select repeat('x', 1 << 20) from generate_series(1, 257)", err: "more than 256 MiB"},
	} {
		t.Run(test.sql, func(t *testing.T) {
			tasks, err := once(t, postgres.Query(db, test.sql))
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				require.NotContains(t, err.Error(), "\n")
				require.Equal(t, test.invalid, errors.Is(err, replica.ErrInvalid))
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, tasks)
		})
	}
	require.Nil(t, postgres.Query(nil, "select 1"))
}

// A notification brings the next query at once, many bring one in a tenth of a second.
func TestQuery_Notified(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	s.SQL("postgres", "create table tenants (id text); insert into tenants values ('a')")
	s.SQL("postgres", `create function tell() returns trigger language plpgsql as $$ begin notify orchestrator_tasks; return null; end $$;
		create trigger tell after insert or update or delete or truncate on tenants for each statement execute function tell()`)
	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan int), make(chan error, 1)
	source := postgres.Query(pool(t, s.URL(pgtest.User, "postgres")), "select id from tenants")
	go func() {
		ended <- source(ctx, func(tasks []replica.Task) error {
			told <- len(tasks)
			return nil
		})
	}()
	require.Equal(t, 1, <-told)
	s.SQL("postgres", "do $$ begin for i in 1..60 loop insert into tenants values ('b' || i); commit; end loop; end $$")
	began := time.Now()
	n := 0
	for last := 0; last < 61; n++ {
		select {
		case last = <-told:
		case <-time.After(5 * time.Second):
			require.Fail(t, "the query has not run after a notification")
		}
	}
	require.LessOrEqual(t, n, 6)
	t.Logf("%d queries in %v", n, time.Since(began))
	s.SQL("postgres", "select pg_terminate_backend(pid) from pg_stat_activity where query like '%tenants' and pid <> pg_backend_pid()")
	require.ErrorContains(t, <-ended, "query of the tasks: ")
	cancel()
}
