//go:build peers

package replicas_test

// The events of a few replicas.

import (
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/bench/replicas"
	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// fewConfig selects the events of a few replicas.
type fewConfig struct {
	replicas, tasks, rounds int
	lease, stop             time.Duration
	paused, away            time.Duration // the server: less than a lease, and more
}

func (cfg fewConfig) settings(listen bool) settings {
	return settings{Tasks: cfg.tasks, Lease: cfg.lease, Stop: cfg.stop, Listen: listen}
}

// measureFew measures the events that take less than a lease one after another, and the
// others at the same time: there the replicas mostly wait.
func measureFew(t *testing.T, s *pgtest.Server, cfg fewConfig) replicas.Few {
	f := replicas.Few{Replicas: cfg.replicas, Tasks: cfg.tasks, Lease: cfg.lease, Rounds: cfg.rounds, Paused: cfg.paused, Away: cfg.away}
	t.Run("Listening", func(t *testing.T) { f.Listening = starts(newCluster(t, s, cfg.settings(true)), cfg) })
	t.Run("Heartbeats", func(t *testing.T) { f.Heartbeats = starts(newCluster(t, s, cfg.settings(false)), cfg) })
	t.Run("Waiting", func(t *testing.T) {
		t.Run("KillWorker", func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, s, cfg.settings(true))
			f.KillWorker = kills(c, cfg, c.worker)
		})
		t.Run("KillLeader", func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, s, cfg.settings(true))
			f.KillLeader = kills(c, cfg, c.leader)
		})
		t.Run("Server", func(t *testing.T) {
			t.Parallel()
			f.Server = outages(newCluster(t, pgtest.StartDurable(t), cfg.settings(true)), cfg)
		})
	})
	return f
}

// starts measures cold starts, joins, and the ends of workers and leaders.
func starts(c *cluster, cfg fewConfig) (s replicas.Starts) {
	for range cfg.replicas - 1 {
		c.add()
	}
	c.awaitEven() // confirms the table
	for range cfg.rounds {
		c.endAll()
		from := proctest.Now()
		c.startAll()
		from = c.First(began, from).At
		c.rest()
		even := c.awaitEven()
		s.Cold.Took = append(s.Cold.Took, time.Duration(c.allRan(from)-from))
		s.ColdEven.Took = append(s.ColdEven.Took, time.Duration(even-from))
	}
	c.add()
	c.awaitEven()
	end := func(e *replicas.Event, r *proctest.Process) {
		c.rest()
		from := proctest.Now()
		r.Leave()
		c.awaitEnd(r)
		e.Took = append(e.Took, time.Duration(c.awaitEven()-from))
		e.Gaps = append(e.Gaps, c.gaps(from)...)

		c.rest()
		from = proctest.Now()
		r.Start()
		even := c.awaitEven()
		from = c.First(began, from).At
		s.Join.Took = append(s.Join.Took, time.Duration(even-from))
		s.Join.Gaps = append(s.Join.Gaps, c.gaps(from)...)
	}
	for range cfg.rounds {
		end(&s.EndWorker, c.worker())
		end(&s.EndLeader, c.leader())
	}
	c.noOverlaps()
	return s
}

// kills measures how long after a replica was killed its tasks run elsewhere.
func kills(c *cluster, cfg fewConfig, choose func() *proctest.Process) (e replicas.Event) {
	for range cfg.replicas {
		c.add()
	}
	c.awaitEven()
	for range cfg.rounds {
		c.rest()
		r := choose()
		from := proctest.Now()
		r.Kill()
		c.awaitAll()
		e.Took = append(e.Took, time.Duration(c.lastStart()-from))
		e.Gaps = append(e.Gaps, c.gaps(from)...)
		c.startAll()
	}
	c.noOverlaps()
	return e
}

// outages measures what happens while the server does not answer, for less than a lease
// and for more.
func outages(c *cluster, cfg fewConfig) (o replicas.Outages) {
	for range cfg.replicas {
		c.add()
	}
	c.awaitEven()
	for range cfg.rounds {
		c.rest()
		from := proctest.Now()
		c.server.Pause()
		c.Pass(cfg.paused)
		c.server.Continue()
		c.Pass(cfg.lease / 4)
		c.awaitEven()
		for _, n := range c.starts(from) {
			o.PauseMoves += n
		}

		c.rest()
		from = proctest.Now()
		c.server.Crash()
		c.Wait("all tasks have stopped", patience, func() bool { return len(c.Look()) == 0 })
		o.Stopped.Took = append(o.Stopped.Took, time.Duration(c.lastStop()-from))
		c.Pass(cfg.away - time.Duration(proctest.Now()-from))
		c.server.Start()
		returned := proctest.Now()
		c.awaitAll()
		o.Back.Took = append(o.Back.Took, time.Duration(c.allRan(from)-returned))
		c.awaitEven()
	}
	c.noOverlaps()
	return o
}
