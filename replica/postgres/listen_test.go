package postgres_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// waiter reads and then waits for a member, again and again, as a replica does.
type waiter struct {
	m        *member
	returned chan error // each Wait
}

func newWaiter(t *testing.T, m *member) *waiter {
	w := &waiter{m: m, returned: make(chan error)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			v, err := m.table.Read(ctx, replica.Query{Self: m.self.ID})
			select {
			case w.returned <- nil: // what is written from now on wakes
			case <-ctx.Done():
			}
			if err == nil {
				err = m.table.Wait(ctx, replica.Query{Self: m.self.ID, Server: v.Server, Since: v.Revision})
			}
			select {
			case w.returned <- err:
			case <-ctx.Done():
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return w
}

// listens waits until the connection is there, after which the first Wait returns, and the next
// one is about to begin.
func (w *waiter) listens(t *testing.T) {
	t.Helper()
	for range 3 {
		require.NoError(t, <-w.returned)
	}
}

// requireHeard fails the test unless a member hears of the order that a leader writes.
func requireHeard(t *testing.T, leader *member) {
	t.Helper()
	w := newWaiter(t, newMember(leader.table, 9))
	w.listens(t)
	leader.write(t, &replica.Batch{Orders: []replica.Order{{Member: 9, Task: "heard"}}})
	require.NoError(t, <-w.returned)
}

func TestWait(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	db := pool(t, s.URL(pgtest.User, "postgres"))
	a, b, other := newMember(newTable(t, db, "pollers"), 1), newMember(newTable(t, db, "pollers"), 2), newMember(newTable(t, db, "others"), 3)
	a.lead(t)
	b.sync(t, nil)
	// Member 9 and the leader wait.
	member, leader := newMember(newTable(t, db, "pollers"), 9), newMember(newTable(t, db, "pollers"), 1)
	member.sync(t, nil)
	waiters := []*waiter{newWaiter(t, member), newWaiter(t, leader)}
	for _, w := range waiters {
		w.listens(t)
	}
	const none, toMember, toLeader, toBoth = 0, 1, 2, 3
	for _, step := range []struct {
		name string
		told int
		sync func()
	}{
		{"heartbeat", none, func() { b.sync(t, nil) }},
		{"report", none, func() { b.sync(t, func(u *replica.Update) { u.Report = &replica.Report{Applied: 5} }) }},
		{"another table", none, func() { other.lead(t) }},
		{"an order", toMember, func() { a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 9, Task: "t"}}}) }},
		{"an order of another member", none, func() { a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: "t"}}}) }},
		{"many orders", toBoth, func() {
			var all []replica.Order
			for id := range uint64(201) {
				all = append(all, replica.Order{Member: id + 100, Task: "t"})
			}
			a.write(t, &replica.Batch{Orders: all})
		}},
		{"tasks", none, func() { a.write(t, &replica.Batch{Tasks: []replica.Task{{Name: "t"}}}) }},
		{"join", toLeader, func() { newMember(newTable(t, db, "pollers"), 4).sync(t, nil) }},
		{"drain", toLeader, func() { b.self.Draining = true; b.sync(t, nil) }},
		{"asked", toLeader, func() { b.sync(t, func(u *replica.Update) { u.Asks = []replica.Ask{{Verb: "drain", Target: "x"}} }) }},
		{"evicted", none, func() { a.write(t, &replica.Batch{Evict: map[uint64]uint64{4: 1}}) }},
		{"drain of the leader", toBoth, func() { a.self.Draining = true; a.sync(t, nil) }},
		{"elected", toBoth, func() { a.sync(t, func(u *replica.Update) { u.Campaign = u.Epoch + 1<<32 }) }},
		{"refused campaign", none, func() { a.sync(t, func(u *replica.Update) { u.Campaign, u.Epoch = 9, 8 }) }},
		{"left", toLeader, func() { b.sync(t, func(u *replica.Update) { u.Left = []uint64{2} }) }},
		{"the leader's former life left", toBoth, func() {
			newMember(newTable(t, db, "pollers"), 5).sync(t, func(u *replica.Update) { u.Left = []uint64{1} })
		}},
		{"lost", toBoth, func() {
			s.SQL("postgres", "update replica_tables set epoch = 7 where name = 'pollers'")
			newMember(newTable(t, db, "pollers"), 6).sync(t, nil)
		}},
	} {
		step.sync()
		for i, w := range waiters {
			if step.told&(1<<i) == 0 {
				select {
				case err := <-w.returned:
					require.Fail(t, "Wait returned", "%s: %v", step.name, err)
				case <-time.After(50 * time.Millisecond):
				}
				continue
			}
			select {
			case err := <-w.returned:
				require.NoError(t, err, step.name)
				require.NoError(t, <-w.returned, step.name) // it has read
			case <-time.After(time.Minute):
				require.Fail(t, "Wait did not return", step.name)
			}
		}
	}
	s.Crash()
	require.ErrorContains(t, <-waiters[0].returned, "table \"pollers\": ")
}

// A connection that is cut is an error, and the next Wait makes another one.
func TestWait_ABrokenConnection(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	m := newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1)
	m.lead(t)
	w := newWaiter(t, m)
	for range 3 {
		w.listens(t)
		s.SQL("postgres", "select pg_terminate_backend(pid) from pg_stat_activity where query like 'listen orchestrator%'")
		require.ErrorContains(t, <-w.returned, `listen for changes of table "pollers": `)
	}
}

// A Wait that has heard nothing until its context ended keeps the connection, and the next one
// tries it.
func TestWait_KeepsItsConnection(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	m := newMember(newTable(t, pool(t, s.URL(pgtest.User, "postgres")), "pollers"), 1)
	m.lead(t)
	listening := func() string {
		return s.SQL("postgres", "select string_agg(pid::text, ',') from pg_stat_activity where query like 'listen orchestrator%' or query = 'select 1'")
	}
	q := replica.Query{Self: 1, Server: m.last.Server, Since: m.last.Revision}
	for first := ""; ; {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		err := m.table.Wait(ctx, q)
		cancel()
		if err == nil { // it connects
			continue
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		if first != "" {
			require.Equal(t, first, listening())
			break
		}
		first = listening()
	}
	require.NoError(t, m.table.Close())
	require.Eventually(t, func() bool { return listening() == "" }, time.Minute, time.Millisecond)
}

// Through PgBouncer in transaction mode notifications do not arrive. That is said once, and not
// tried again through the same connections.
func TestWait_Deaf(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	l := new(log)
	m := newMember(newTable(t, pool(t, s.Bouncer(t).URL(pgtest.User, "postgres")), "pollers", postgres.WithLogger(l.logger())), 1)
	m.sync(t, nil)
	for failed := 0; failed < 3; {
		if err := m.table.Wait(t.Context(), replica.Query{Self: 1}); err != nil {
			require.ErrorContains(t, err, "notifications do not arrive")
			failed++
		}
	}
	require.Equal(t, 1, strings.Count(l.String(), "replicas read at intervals"))
}
