package replica_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// Two replicas share four tasks. In production they are two processes, and the table is
// in a database.
func Example() {
	ctx, stop := context.WithTimeout(context.Background(), 3*time.Second)
	defer stop()
	table := memory.New()
	tasks := replica.Names("billing", "mail", "orders", "search")

	var mu sync.Mutex
	ran := make(map[string]bool)
	var replicas sync.WaitGroup
	for _, name := range []string{"r1", "r2"} {
		poll := func(ctx context.Context, task string) error {
			mu.Lock()
			ran[task] = true
			mu.Unlock()
			<-ctx.Done() // or work until then
			return ctx.Err()
		}
		replicas.Go(func() {
			err := replica.Run(ctx, table, tasks, poll, replica.WithName(name), replica.WithLease(time.Second, 100*time.Millisecond))
			if err != nil {
				fmt.Println(err)
			}
		})
	}
	replicas.Wait()
	fmt.Println(len(ran), "tasks ran")
	// Output: 4 tasks ran
}

// What Kubernetes' probes and a person ask a replica.
func ExampleReplica_Status() {
	r, err := replica.New(memory.New(), replica.Names("billing"), func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return ctx.Err()
	}, replica.WithName("r1"))
	if err != nil {
		fmt.Println(err)
		return
	}
	check := func(f func() error) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if err := f(); err != nil {
				http.Error(w, err.Error(), http.StatusServiceUnavailable)
				return
			}
			_, _ = io.WriteString(w, "ok\n")
		}
	}
	mux := http.NewServeMux()
	mux.Handle("GET /livez", check(r.Alive))
	mux.Handle("GET /readyz", check(r.Ready))
	mux.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(r.Status()) // the client is gone
	})

	for _, path := range []string{"/livez", "/readyz"} { // before r.Run
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Print(path, " ", answer.Code, " ", answer.Body)
	}
	// Output:
	// /livez 200 ok
	// /readyz 503 replica r1: no lease
}
