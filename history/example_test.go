package history_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/history"
)

// A fleet is recorded to a file. Later, the file says what happened to worker w2.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "terms.log")
	if err := record(path); err != nil {
		fmt.Println(err)
		return
	}

	ring, err := history.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	view := ring.View()
	for _, change := range view.Changes(history.Filter{Worker: new("w2")}) {
		fmt.Println(change.Kind, change.Task, change.Outcome)
	}
	for _, load := range view.Load("w2") {
		fmt.Printf("term %d: %d tasks\n", load.Term.Number, load.Tasks)
	}
	for term, event := range view.Events("w2") {
		fmt.Printf("term %d: draining: %t\n", term.Stats.Term.Number, event.After.Draining)
	}
	// Output:
	// move/drain orders done
	// start/missing orders done
	// term 1: 1 tasks
	// term 2: 0 tasks
	// term 2: draining: true
}

// record runs two terms of a fleet whose worker w2 drains.
func record(path string) error {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		return err
	}
	defer cluster.Close(ctx)
	cluster.Start("w1", "w2")
	o, err := orchestrator.New(cluster, orchestrator.WithSeed(0))
	if err != nil {
		return err
	}
	ring, err := history.New(history.WithFile(path, 0, 0))
	if err != nil {
		return err
	}
	stop := history.Record(ring, o)
	defer stop()
	return errors.Join(
		o.AddWorker("w1"), o.AddWorker("w2"), o.AddTask("mail"), o.AddTask("orders"),
		o.NextTerm(ctx),
		o.DrainWorker("w2"),
		o.NextTerm(ctx),
		ring.Close(), // writes what is queued
	)
}
