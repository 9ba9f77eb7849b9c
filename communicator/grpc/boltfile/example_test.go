package boltfile_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/worker"
)

// A process has completed one task and runs another when it crashes. The next
// process reports both.
func ExampleRecord() {
	folder, err := os.MkdirTemp("", "boltfile-")
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

// crash leaves a record as a crashed worker does.
func crash(path string) error {
	record, err := boltfile.OpenRecord(path)
	if err != nil {
		return err
	}
	err = record.Save([]worker.TaskRecord[string]{{Task: "count", Completed: true}, {Task: "serve"}}, nil)
	return errors.Join(err, record.Close())
}

func report(path string) error {
	record, err := boltfile.OpenRecord(path)
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
	for _, t := range w.Previous() {
		fmt.Printf("%s, completed: %v\n", t.Task, t.Completed)
	}
	return w.Close(context.Background()) // removes the file, because no task is left to report
}
