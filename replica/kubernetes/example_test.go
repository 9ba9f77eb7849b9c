package kubernetes_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http/httptest"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

// In a pod, kubernetes.InCluster("pollers") is the table. This example has a server in the process
// that answers as an API server does.
func ExampleNew() {
	server := &fake{leases: make(map[string]map[string]any), changed: make(chan struct{}), cut: make(chan struct{}), counts: make(map[string]int)}
	server.Server = httptest.NewServer(server)
	defer server.Close()
	defer server.cutWatches()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	table := kubernetes.New(kubernetes.Config{URL: server.URL, Namespace: "test"}, "pollers", kubernetes.WithLogger(log))

	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	ran := make(chan string, 2)
	poll := func(ctx context.Context, customer string) error {
		ran <- customer
		<-ctx.Done()
		return nil
	}
	go func() {
		customers := []string{<-ran, <-ran}
		slices.Sort(customers)
		fmt.Println("polls", customers)
		server.print()
		stop()
	}()
	err := replica.Run(ctx, table, replica.Names("acme", "initech"), poll, replica.WithName("pod-1"), replica.WithLease(10*time.Second, time.Second), replica.WithLogger(log))
	fmt.Println(err)
	server.print()
	// Output:
	// polls [acme initech]
	// pollers: pod-1
	// pollers-ID: pod-1
	// pollers-ID-orders: 2 tasks
	// pollers-tasks-0: 2 tasks
	// <nil>
	// pollers: pod-1
	// pollers-tasks-0: 2 tasks
}
