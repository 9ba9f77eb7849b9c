package communicator_test

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
	"github.com/f8949c05/orchestrator/worker"
)

// A Func turns the existing calls of a service into a Communicator. In this example
// the service is a map of workers in the same process.
func ExampleFunc() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	workers := map[string]*worker.Worker[string]{"w1": w}

	var c orchestrator.Communicator[string, string] = communicator.Func[string, string]{
		ListFunc:   func(ctx context.Context, name string) ([]string, error) { return workers[name].List(ctx) },
		AddFunc:    func(ctx context.Context, name, task string) error { return workers[name].Add(ctx, task) },
		RemoveFunc: func(ctx context.Context, name, task string) error { return workers[name].Remove(ctx, task) },
	}
	fmt.Println(c.Add(ctx, "w1", "orders"))
	fmt.Println(c.List(ctx, "w1"))
	fmt.Println(w.Close(ctx))
	// Output:
	// <nil>
	// [orders] <nil>
	// <nil>
}
