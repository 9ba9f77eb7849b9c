package boltrecord_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/f8949c05/orchestrator/worker"
	"github.com/f8949c05/orchestrator/worker/boltrecord"
)

// A process crashes that has completed one task and runs another. The one after
// it is told of both.
func Example() {
	folder, err := os.MkdirTemp("", "boltrecord-")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(folder) }()
	path := filepath.Join(folder, "worker.db")
	if err := errors.Join(crash(path), report(path)); err != nil {
		fmt.Println(err)
	}
	// Output:
	// count, completed: true
	// serve, completed: false
}

// crash leaves behind what a worker saves that crashes.
func crash(path string) error {
	record, err := boltrecord.Open(path)
	if err != nil {
		return err
	}
	err = record.Save([]worker.Trace[string]{{Task: "count", Completed: true}, {Task: "serve"}}, nil)
	return errors.Join(err, record.Close())
}

func report(path string) error {
	record, err := boltrecord.Open(path)
	if err != nil {
		return err
	}
	w, err := worker.New(func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	}, worker.WithRecord(record))
	if err != nil {
		return errors.Join(err, record.Close())
	}
	for _, trace := range w.Before() {
		fmt.Printf("%s, completed: %v\n", trace.Task, trace.Completed)
	}
	return w.Close(context.Background()) // which removes the file, since nothing is left to tell
}
