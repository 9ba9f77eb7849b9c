package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func Example() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		panic(err)
	}
	defer cluster.Close(ctx)
	o, err := orchestrator.New(cluster)
	if err != nil {
		panic(err)
	}
	h, err := dashboard.New()
	if err != nil {
		panic(err)
	}
	defer dashboard.Lead(h, o)()
	server := httptest.NewServer(h) // on a loopback address, so no token is needed
	defer server.Close()

	for _, name := range []string{"worker-1", "worker-2", "worker-3"} {
		cluster.Start(name)
		_ = o.AddWorker(name)
	}
	_ = o.AddTask("report")
	_ = o.AddTask("audit", orchestrator.WithTaskInstances(5))
	_ = o.NextTerm(ctx)

	answer, err := server.Client().Get(server.URL + "/api/v1/status")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	var status api.Status
	if err := json.NewDecoder(answer.Body).Decode(&status); err != nil {
		panic(err)
	}
	fmt.Println(status.Summary)
	for _, p := range status.Problems {
		fmt.Println(p.Text)
	}
	// Output:
	// 1 thing needs attention. 2 of 6 instances are missing.
	// 2 instances of audit have no place: every worker that could take one already runs the task.
}
