package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

func TestWait(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	table := postgres.New(db, "pollers", postgres.WithListen(db.Config().ConnConfig))
	a, b, other := newMember(table, 1), newMember(table, 2), newMember(postgres.New(db, "others"), 3)
	server := a.sync(t, nil).Server
	b.sync(t, func(u *replica.Update) { u.Confirm = server })

	ctx, cancel := context.WithCancel(t.Context())
	returned, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			_ = table.Wait(ctx)
			returned <- struct{}{}
		}
	}()
	<-returned // it listens
	for _, step := range []struct {
		name    string
		changes bool
		sync    func()
	}{
		{"heartbeat", false, func() { a.sync(t, nil) }},
		{"another table", false, func() { other.sync(t, nil) }},
		{"join", true, func() { newMember(table, 4).sync(t, nil) }},
		{"drain", true, func() { b.self.Draining = true; b.sync(t, nil) }},
		{"passive", true, func() { b.self.Passive = true; b.sync(t, nil) }},
		{"elected", true, func() { a.sync(t, func(u *replica.Update) { u.Campaign = 1 }) }},
		{"refused campaign", false, func() { a.sync(t, func(u *replica.Update) { u.Campaign, u.Epoch = 9, 8 }) }},
		{"evicted", true, func() { a.sync(t, func(u *replica.Update) { u.Evict = map[uint64]uint64{4: 1} }) }},
		{"evicted before", false, func() { a.sync(t, func(u *replica.Update) { u.Evict = map[uint64]uint64{4: 1} }) }},
		{"left", true, func() { b.sync(t, func(u *replica.Update) { u.Left = []uint64{2} }) }},
	} {
		step.sync()
		if step.changes {
			select {
			case <-returned:
			case <-time.After(time.Minute):
				require.Fail(t, "Wait did not return", step.name)
			}
			continue
		}
		select {
		case <-returned:
			require.Fail(t, "Wait returned", step.name)
		case <-time.After(50 * time.Millisecond):
		}
	}

	s.Crash()
	s.Start()
	db.Reset()
	<-returned // the connection broke
	<-returned // another one listens
	newMember(table, 5).sync(t, nil)
	<-returned
	cancel()
	select {
	case <-returned: // it was called before the end of ctx
		<-stopped
	case <-stopped:
	}
}

func TestWait_WithoutListen(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, postgres.New(nil, "pollers").Wait(ctx), context.Canceled)
}

func TestWait_ABrokenConnection(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	config, err := pgx.ParseConfig(s.URL(pgtest.User, "postgres"))
	require.NoError(t, err)
	table := postgres.New(nil, "pollers", postgres.WithListen(config))
	for range 3 {
		require.NoError(t, table.Wait(t.Context()), "it listens")
		s.SQL("postgres", "select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen orchestrator'")
		require.ErrorContains(t, table.Wait(t.Context()), `listen for changes of table "pollers": `)
	}
	s.Stop()
	require.ErrorContains(t, table.Wait(t.Context()), "connection refused")
}

// A connection that is kept between two calls of Wait ends with the context.
func TestWait_ClosesItsConnection(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	table := postgres.New(db, "pollers", postgres.WithListen(db.Config().ConnConfig))
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, table.Wait(ctx))
	listening := func() string {
		return s.SQL("postgres", "select count(*) from pg_stat_activity where query = 'listen orchestrator'")
	}
	require.Equal(t, "1", listening())
	cancel()
	require.Eventually(t, func() bool { return listening() == "0" }, time.Minute, 10*time.Millisecond)
}
