//go:build peers

package replicas_test

// The events of replicas that are processes.

import (
	"fmt"
	"slices"
	"testing"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// The events, which are rows.
const (
	cold       = "cold start: until all tasks run"
	join       = "a replica joins: until they are even"
	endMember  = "SIGTERM of a member: until they are even"
	endLeader  = "SIGTERM of the leader: until they are even"
	killMember = "kill −9 of a member: until all tasks run"
	killLeader = "kill −9 of the leader: until all tasks run"
	added      = "a new task: from its Source until it runs"
	longest    = "longest gap of a task, "
)

// fleet is one size, and its goals.
type fleet struct {
	replicas, tasks int
	ratio           float64 // of a join and of the end of a member: × the other system
	leader, gap     float64 // ms of the end of the leader, and of the longest gap in a round
}

// mode is a way to the server.
type mode struct {
	name, url string
	listen    bool
}

// reaction measures the events of each fleet in rounds: both systems in turns, each way in turn.
func reaction(t *testing.T, s *pgtest.Server, r *results, cfg config) {
	for _, f := range cfg.fleets {
		t.Run(fmt.Sprintf("%dx%d", f.replicas, f.tasks), func(t *testing.T) {
			url := s.URL(pgtest.User, database)
			modes := []mode{{"LISTEN", url, true}, {"without LISTEN", url, false}, {"PgBouncer", s.Bouncer(t).URL(pgtest.User, database), false}}
			if *quick {
				modes = modes[:1]
			}
			tables := make([]*table, len(modes))
			for i, m := range modes {
				tables[i] = r.table(fmt.Sprintf("%d × %d, %s, ms", f.replicas, f.tasks, m.name))
			}
			for round := range cfg.rounds {
				for i, m := range modes {
					inTurns(t, m.name, round, func(t *testing.T, system string) {
						of := settings{System: system, URL: m.url, Listen: m.listen, Lease: cfg.lease, Stop: cfg.stop, Table: fmt.Sprint(f.replicas, f.tasks, m.name, system)}
						of.Listen = of.Listen || m.name == "PgBouncer" && system == ours // it finds out that it hears nothing
						c := newCluster(t, s, of, f.tasks)
						c.events(tables[i], f.replicas, round, m.listen)
					})
				}
			}
			goals(r, tables, f)
		})
	}
}

// events measures every event once. The first cold start of a table waits for a lease.
func (c *cluster) events(t *table, replicas, round int, kills bool) {
	record := func(row string, from, to int64) { t.add(row, c.settings.System, ms(to-from)) }
	from := proctest.Now()
	c.add(replicas)
	if round == 0 {
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

	for row, leads := range map[string]bool{endMember: false, endLeader: true} {
		c.rest()
		leader, r := c.leader()
		if leads {
			r = leader
		}
		from := c.end(r)
		record(row, from, c.awaitEven())
		t.add(longest+row, c.settings.System, slices.Max(c.gaps(from)))

		c.rest()
		from = proctest.Now()
		r.Start()
		to := c.awaitEven()
		record(join, c.First(began, from).At, to)
		t.add(longest+join, c.settings.System, slices.Max(c.gaps(from)))
	}

	c.rest()
	from = proctest.Now()
	c.setTasks(c.tasks + 1)
	to := c.awaitAll()
	record(added, c.First(told, from).At, to)

	for row, leads := range map[string]bool{killMember: false, killLeader: true} {
		if !kills {
			break
		}
		c.rest()
		leader, r := c.leader()
		if leads {
			r = leader
		}
		from := proctest.Now()
		r.Kill()
		record(row, from, c.awaitAll())
		r.Start()
		c.awaitEven()
	}
	c.end(c.alive()...)
	c.noOverlaps()
}

// goals adds the goals of a fleet.
func goals(r *results, tables []*table, f fleet) {
	listen := tables[0]
	r.ratios(listen, f.ratio, join, endMember)
	r.ratios(listen, 1, cold, killMember, killLeader)
	r.medians(listen, f.leader, "ms", endLeader)
	r.medians(listen, 100, "ms", added)
	r.medians(listen, f.gap, "ms", longest+join, longest+endMember, longest+endLeader)
	for _, t := range tables[1:] {
		for _, row := range []string{cold, join, endMember, endLeader, added} {
			r.atMost(2, "× with LISTEN", t.Title+": "+row, t.median(row, ours)/listen.median(row, ours))
		}
	}
}
