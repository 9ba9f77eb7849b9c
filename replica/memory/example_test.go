package memory_test

import (
	"context"
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

func Example() {
	table := memory.New()
	view, err := table.Sync(context.Background(), replica.Update{Self: replica.Member{
		ID: 1, Heartbeat: 1, Lease: 15 * time.Second, Name: "r1", Address: "127.0.0.1:7000",
	}})
	if err != nil {
		panic(err)
	}
	fmt.Println(len(view.Members), view.Members[0].Name, view.Confirmed)
	// Output: 1 r1 false
}
