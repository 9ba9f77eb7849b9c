package manager_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/worker"
)

// A manager and a worker, which are usually separate processes. The manager's store
// would be a file (see package boltfile), and both would use WithCredentials.
func ExampleManager() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	m, err := manager.New(manager.NewMemoryStore())
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	running.Go(func() { _ = m.Run(ctx, listener) })

	works := make(chan string)
	w, err := worker.New(func(ctx context.Context, task string) error {
		content, _ := worker.Content(ctx)
		works <- fmt.Sprintf("%s: %s", task, content)
		<-ctx.Done() // until the task is stopped
		return nil
	}, worker.WithLease(10*time.Second, time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	member, err := manager.NewMember(listener.Addr().String(), "worker 1", w)
	if err != nil {
		fmt.Println(err)
		return
	}
	own, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	running.Go(func() { _ = member.Run(ctx, own) })

	for _, content := range []string{"every 5s", "every 10s"} {
		_, err := m.Put(ctx, manager.Item{Name: "poll orders", Content: []byte(content)})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(<-works)
	}
	for _, member := range m.Members() {
		fmt.Println(member.Name, "is a member, with", len(m.Tasks(member.WorkerID)), "task")
	}
	// Output:
	// poll orders: every 5s
	// poll orders: every 10s
	// worker 1 is a member, with 1 task
}

// A program with both a manager and a worker gives them the same options, beside those
// of their own.
func ExampleOption() {
	quiet := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	common := grpc.WithOptions(grpc.WithLogger(quiet), grpc.WithMaxMessage(4<<20))

	if _, err := manager.New(manager.NewMemoryStore(), common, manager.WithInterval(5*time.Second)); err != nil {
		fmt.Println(err)
		return
	}
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(10*time.Second, time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = w.Close(context.Background()) }() // it has no tasks
	_, err = manager.NewMember("manager.example.com:7000", "worker-1", w, common, manager.WithAdvertise("worker-1.example.com:7000"))
	fmt.Println(err)
	// Output: <nil>
}
