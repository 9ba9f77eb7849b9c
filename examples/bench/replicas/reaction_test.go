//go:build peers

package replicas_test

// The events of replicas that are processes.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

// The events, and what is measured of them: the rows.
const (
	join      = "a replica joins"
	endMember = "SIGTERM of a member"
	endLeader = "SIGTERM of the leader"
	even      = ": until they are even"
	gap       = ": longest gap"

	killMember = "kill −9 of a member: until all tasks run"
	killLeader = "kill −9 of the leader: until all tasks run"
	cold       = "cold start: until all tasks run"
	added      = "a new task: from its Source until it runs"
)

// fleet is one size, and its goals in ms.
type fleet struct {
	replicas, tasks   int
	even, leader, gap float64 // of a join and the end of a member, of the end of the leader, and of the longest gap in a round
}

// reaction measures the events of each fleet in rounds, on each way in turn.
func reaction(t *testing.T, all []way, r *results, cfg config) {
	if cfg.short {
		all = usual(all)
	}
	for _, f := range cfg.fleets {
		t.Run(fmt.Sprintf("%dx%d", f.replicas, f.tasks), func(t *testing.T) {
			of := r.table(fmt.Sprintf("%d replicas, %d tasks", f.replicas, f.tasks), fmt.Sprintf("ms, rounds: %d", cfg.rounds))
			for round := range cfg.rounds {
				for _, w := range all {
					t.Run(w.column, func(t *testing.T) {
						s := settings{Table: fmt.Sprint(f.replicas, ".", f.tasks, ".", w.column), Lease: cfg.lease, Stop: cfg.stop}
						c := newCluster(t, w, s, f.tasks)
						c.events(of, w.column, f.replicas, round == 0, slices.Contains(usual(all), w) && w.store != onMemory)
					})
				}
			}
			if all[0].store == onPostgres {
				goals(r, of, f)
			}
		})
	}
}

// events measures every event once. The first cold start of a new table waits for a lease.
func (c *cluster) events(t *table, column string, replicas int, isNew, kills bool) {
	record := func(row string, from, to int64) { t.add(column, row, ms(to-from)) }
	from := proctest.Now()
	c.add(replicas)
	if isNew {
		c.awaitEven()
		c.end(c.replicas...)
		from = proctest.Now()
		for _, r := range c.replicas {
			r.Start()
		}
	}
	c.awaitEven()
	from = c.First(began, from).At
	record(cold, from, c.allRan(from))

	for _, row := range []string{endMember, endLeader} {
		c.rest()
		r := c.one(row == endLeader)
		from := c.end(r)
		record(row+even, from, c.awaitEven())
		t.add(column, row+gap, slices.Max(c.gaps(from)))

		c.rest()
		from = proctest.Now()
		r.Start()
		to := c.awaitEven()
		record(join+even, c.First(began, from).At, to)
		t.add(column, join+gap, slices.Max(c.gaps(from)))
	}

	c.rest()
	from = proctest.Now()
	c.setTasks(c.tasks + 1)
	to := c.awaitAll()
	record(added, c.First(told, from).At, to)

	for _, row := range []string{killMember, killLeader} {
		if !kills {
			break
		}
		c.rest()
		r, from := c.one(row == killLeader), proctest.Now()
		r.Kill()
		record(row, from, c.awaitAll())
		r.Start()
		c.awaitEven()
	}
	c.end(c.alive()...)
	c.noOverlaps()
}

// goals adds the goals of a fleet on PostgreSQL.
func goals(r *results, t *table, f fleet) {
	const listen = "PostgreSQL"
	r.medians(t, listen, f.even, "ms", join+even, endMember+even)
	r.medians(t, listen, f.leader, "ms", endLeader+even)
	r.medians(t, listen, 100, "ms", added)
	r.medians(t, listen, f.gap, "ms", join+gap, endMember+gap, endLeader+gap)
	for _, column := range []string{"without LISTEN", pgBouncer} {
		if !slices.Contains(t.columns, column) {
			continue
		}
		for _, row := range []string{cold, join + even, endMember + even, endLeader + even, added} {
			with, _ := t.of(listen, row)
			without, _ := t.of(column, row)
			r.atMost(2, "× with LISTEN", t.title+", "+column+": "+row, without/with)
		}
	}
}
