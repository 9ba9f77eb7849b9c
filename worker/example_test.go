package worker_test

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/worker"
)

// A worker runs one function per task until the task is removed.
func Example() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, task string) error {
		fmt.Println("polling", task)
		worker.Ready(ctx)
		<-ctx.Done()
		fmt.Println("end of", task+":", context.Cause(ctx))
		return nil
	}, worker.WithReadiness())
	if err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(w.Add(ctx, "orders"))
	fmt.Println(w.List(ctx))
	fmt.Println(w.Remove(ctx, "orders"))
	fmt.Println(w.List(ctx))
	fmt.Println(w.Close(ctx))
	// Output:
	// polling orders
	// <nil>
	// [orders] <nil>
	// end of orders: the task was removed
	// <nil>
	// [] <nil>
	// <nil>
}

// With slots, tasks beyond the limit wait in the order in which they were added.
func ExampleWithSlots() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	}, worker.WithSlots(1))
	if err != nil {
		fmt.Println(err)
		return
	}

	for _, task := range []string{"a", "b", "c"} {
		if err := w.Add(ctx, task); err != nil {
			fmt.Println(err)
		}
	}
	if err := w.Remove(ctx, "a"); err != nil {
		fmt.Println(err)
	}
	for _, s := range w.Status() {
		fmt.Println(s.Task, s.State)
	}
	fmt.Println(w.Close(ctx))
	// Output:
	// b running
	// c queued
	// <nil>
}

// A transport passes the term of each call to the worker, which refuses writes of
// past terms.
func ExampleWorker_Fence() {
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	w.Fence(orchestrator.Term{Epoch: 7, Number: 12}) // learned at registration

	late := orchestrator.ContextWithTerm(context.Background(), orchestrator.Term{Epoch: 7, Number: 11})
	fmt.Println(w.Add(late, "orders"))
	deposed := orchestrator.ContextWithTerm(context.Background(), orchestrator.Term{Epoch: 6, Number: 99})
	fmt.Println(w.Add(deposed, "orders"))
	// Output:
	// rejected by the worker: stale term: the write is of term 11, the worker has seen 12
	// deposed: the call is of epoch 6, the worker has seen 7
}
