package stats_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/stats"
)

// An orchestrator passes the statistics of each term to a collector, which a
// registry serves.
func Example() {
	ctx := context.Background()
	reg := prometheus.NewRegistry()
	collector, err := stats.Register(reg)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = cluster.Close(ctx) }()
	cluster.Start("w1", "w2", "w3")
	o, err := orchestrator.New(cluster, orchestrator.WithStats(collector.Observe))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, worker := range []string{"w1", "w2", "w3"} {
		_ = o.AddWorker(worker)
	}
	for _, task := range []string{"mail", "news", "shop"} {
		_ = o.AddTask(task, orchestrator.WithTaskInstances(2))
	}
	if err := o.NextTerm(ctx); err != nil {
		fmt.Println(err)
	}

	page := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{}).ServeHTTP(page, httptest.NewRequest("GET", "/metrics", nil))
	for line := range strings.Lines(page.Body.String()) {
		for _, name := range []string{"terms_total", "changes_total{op=\"start\"", "workers{", "load_spread"} {
			if strings.HasPrefix(line, "orchestrator_"+name) {
				fmt.Print(line)
			}
		}
	}
	// Output:
	// orchestrator_changes_total{op="start",reason="lost"} 0
	// orchestrator_changes_total{op="start",reason="missing"} 6
	// orchestrator_load_spread 0
	// orchestrator_terms_total{result="cut"} 0
	// orchestrator_terms_total{result="deposed"} 0
	// orchestrator_terms_total{result="failed"} 0
	// orchestrator_terms_total{result="ok"} 1
	// orchestrator_workers{state="answering"} 3
	// orchestrator_workers{state="lost"} 0
	// orchestrator_workers{state="silent"} 0
}
