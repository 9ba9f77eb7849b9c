//go:build peers

package replicas_test

import (
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	out    = flag.String("replicas.out", "", "measure, and write the results to a `file`")
	only   = flag.String("replicas.only", "", "measure only these `parts`: some of reaction,load,growth,calls,rebalance")
	on     = flag.String("replicas.on", "postgres,etcd,memory", "measure these `stores`")
	short  = flag.Bool("replicas.short", false, "reaction, load and growth only, in few rounds, on the usual way to each store, with at most 100 replicas")
	quick  = flag.Bool("replicas.quick", false, "few rounds and small fleets")
	rounds = flag.Int("replicas.rounds", 0, "other `rounds` of every event than 20, and of every load than 3")
)

// config selects what is measured.
type config struct {
	short       bool // only the usual way to each store
	fleets      []fleet
	rounds      int // of events
	lease, stop time.Duration

	loads    int           // rounds of loads
	idle     time.Duration // their lease
	steadies []int
	steady   time.Duration
	many     int // replicas of a rebalance, and tasks
	moves    int
	most     []int // tasks on one replica
	calls    int   // while a transaction is open
	callers  int   // after an outage
}

// TestReplicas measures. Command bench starts it.
func TestReplicas(t *testing.T) {
	if *out == "" && *only == "" && !*short {
		t.Skip("measures only with -replicas.out, -replicas.only or -replicas.short")
	}
	cfg := config{
		fleets: []fleet{{4, 100, 150, 100, 50}, {4, 900, 200, 150, 50}, {20, 2000, 300, 200, 150}},
		rounds: 20, lease: 6 * time.Second, stop: 800 * time.Millisecond,
		loads: 3, idle: 15 * time.Second, most: []int{100, 1000, 10_000}, steadies: []int{20, 100, 300, 1000}, steady: 30 * time.Second, many: 100, moves: 10_000, calls: 10_000, callers: 20,
	}
	if *quick {
		cfg.fleets = []fleet{{3, 20, 150, 100, 50}}
		cfg.rounds, cfg.lease, cfg.stop = 1, time.Second, 300*time.Millisecond
		cfg.most = []int{10, 50}
		cfg.loads, cfg.idle, cfg.steadies, cfg.steady, cfg.many, cfg.moves, cfg.calls, cfg.callers = 1, time.Second, []int{6}, time.Second, 6, 60, 50, 3
	}
	if *short {
		*only = "reaction,load,growth"
		cfg.short, cfg.rounds, cfg.loads, cfg.steadies, cfg.steady = true, 4, 2, []int{20, 100}, 20*time.Second
	}
	if *rounds > 0 {
		cfg.rounds, cfg.loads = *rounds, *rounds
	}
	var all []way
	r := &results{}
	for store := range strings.SplitSeq(*on, ",") {
		more, version := ways(t, store)
		if all = append(all, more...); version != "" {
			r.Versions = append(r.Versions, version)
		}
	}
	for _, part := range []struct {
		name    string
		measure func(*testing.T, []way, *results, config)
	}{{"reaction", reaction}, {"load", load}, {"growth", growth}, {"calls", calls}, {"rebalance", rebalance}} {
		if *only == "" || slices.Contains(strings.Split(*only, ","), part.name) {
			t.Run(part.name, func(t *testing.T) { part.measure(t, all, r, cfg) })
		}
	}
	r.print(t)
	if *out != "" {
		require.NoError(t, r.write(*out))
	}
}
