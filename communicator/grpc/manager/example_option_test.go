package manager_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/worker"
)

// A program with both a manager and a worker gives them the same options. A slice of
// Option must be copied into a slice of the constructor's own option type.
func ExampleOption() {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	common := []grpc.Option{grpc.WithLogger(quiet), grpc.WithMaxMessage(4 << 20)}

	ofManager := []manager.Option{manager.WithInterval(5 * time.Second)}
	ofMember := []manager.MemberOption{manager.WithAdvertise("worker-1.example.com:7000")}
	for _, opt := range common {
		ofManager = append(ofManager, opt)
		ofMember = append(ofMember, opt)
	}

	if _, err := manager.New(manager.NewMemoryStore(), ofManager...); err != nil {
		fmt.Println(err)
		return
	}
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(10*time.Second, time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = w.Close(context.Background()) }() // it has no tasks
	if _, err := manager.NewMember("manager.example.com:7000", "worker-1", w, ofMember...); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(len(ofManager), len(ofMember))
	// Output: 3 3
}
