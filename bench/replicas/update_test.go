//go:build peers

package replicas_test

// Rolling updates.

import (
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/bench/replicas"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// measureUpdate replaces all replicas, one after the other: each is ended by SIGTERM, then
// another one is started, and then the tasks are evenly spread.
func measureUpdate(t *testing.T, s *pgtest.Server, cfg fewConfig) []replicas.Update {
	var updates []replicas.Update
	for _, listen := range []bool{true, false} {
		u := replicas.Update{Name: "with LISTEN", Replicas: cfg.replicas, Tasks: cfg.tasks}
		if !listen {
			u.Name = "without LISTEN"
		}
		t.Run(u.Name, func(t *testing.T) {
			c := newCluster(t, s, cfg.settings(listen))
			for range cfg.replicas {
				c.add()
			}
			c.awaitEven()
			for range cfg.rounds {
				c.rest()
				from := proctest.Now()
				for _, r := range c.replicas {
					r.Leave()
					c.awaitEnd(r)
					r.Start()
					c.awaitEven()
				}
				u.Took = append(u.Took, time.Duration(c.lastStart()-from))
				u.Gaps = append(u.Gaps, c.gaps(from)...)
				moves := c.starts(from)
				for _, task := range taskNames(cfg.tasks) {
					u.Moves = append(u.Moves, moves[task])
				}
			}
			c.noOverlaps()
		})
		updates = append(updates, u)
	}
	return updates
}
