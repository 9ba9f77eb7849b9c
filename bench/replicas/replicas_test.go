//go:build peers

package replicas_test

import (
	"flag"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/bench/replicas"
	"github.com/f8949c05/orchestrator/internal/pgtest"
)

var (
	out   = flag.String("replicas.out", "", "measure, and write the results to a `file`")
	quick = flag.Bool("replicas.quick", false, "few rounds and small fleets")
)

// TestReplicas measures replicas. It is started by go run -tags peers ./bench -only replicas.
func TestReplicas(t *testing.T) {
	if *out == "" {
		t.Skip("measures only with -replicas.out")
	}
	few := fewConfig{
		replicas: 4, tasks: 20, rounds: 20, lease: 6 * time.Second, stop: 800 * time.Millisecond,
		paused: 2500 * time.Millisecond, away: 10 * time.Second,
	}
	many := manyConfig{replicas: 100, tasks: 10_000, rounds: 5, lease: 15 * time.Second, stop: 2 * time.Second, steady: 30 * time.Second}
	calls := callsConfig{alone: 1000, members: 100, rounds: 5, during: 3 * time.Second}
	if *quick {
		few.rounds, few.lease, few.stop, few.paused, few.away = 1, time.Second, 100*time.Millisecond, 400*time.Millisecond, 2*time.Second
		many = manyConfig{replicas: 5, tasks: 50, rounds: 1, lease: time.Second, stop: 100 * time.Millisecond, steady: time.Second}
		calls = callsConfig{alone: 3, members: 5, rounds: 1, during: 50 * time.Millisecond}
	}
	update := few
	update.tasks = 100
	s := pgtest.StartDurable(t)
	// Each of 100 replicas has a connection, and another one that listens.
	s.SQL(database, "alter system set max_connections = 300")
	s.Stop()
	s.Start()
	r := replicas.Results{Version: s.SQL(database, "show server_version")}
	stop := measureLate(&r.Late)
	t.Run("All", func(t *testing.T) {
		part := func(name string, measure func(t *testing.T)) {
			t.Run(name, func(t *testing.T) {
				if *quick {
					t.Parallel()
				}
				measure(t)
			})
		}
		part("Calls", func(t *testing.T) { r.Calls = measureCalls(t, s, calls) })
		part("Update", func(t *testing.T) { r.Update = measureUpdate(t, s, update) })
		part("Few", func(t *testing.T) { r.Few = measureFew(t, s, few) })
		part("Many", func(t *testing.T) { r.Many = measureMany(t, s, many) })
	})
	stop()
	require.NoError(t, r.Write(*out))
}

// measureLate records every 100 ms how late a timer fires, until stop is called.
func measureLate(late *[]time.Duration) (stop func()) {
	const every = 100 * time.Millisecond
	done := make(chan struct{})
	var measuring sync.WaitGroup
	measuring.Go(func() {
		for {
			began := time.Now()
			select {
			case <-time.After(every):
				*late = append(*late, time.Since(began)-every)
			case <-done:
				return
			}
		}
	})
	return func() {
		close(done)
		measuring.Wait()
	}
}
