package grpc_test

import (
	"context"
	"fmt"
	"net"
	"slices"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// A leader that knows its workers by other means than a Manager, such as a list in a
// file. Each worker serves its calls, and the leader makes them.
func Example_withoutAManager() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()

	// On the worker's machine:
	work := func(ctx context.Context, _ string) error { <-ctx.Done(); return nil }
	w, err := worker.New(work)
	if err != nil {
		panic(err)
	}
	server, err := grpc.NewServer(w)
	if err != nil {
		panic(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, l) }()

	// On the leader's machine:
	comm, err := grpc.NewCommunicator()
	if err != nil {
		panic(err)
	}
	defer comm.Close()
	o, err := orchestrator.New(comm)
	if err != nil {
		panic(err)
	}
	name := grpc.WorkerID{Name: "w1", Incarnation: w.Incarnation()}
	if err := comm.Connect(name, l.Addr().String()); err != nil {
		panic(err)
	}
	if err := o.AddWorker(name); err != nil {
		panic(err)
	}
	if err := o.UpdateTasks([]orchestrator.Task[string]{{Name: "inbox"}, {Name: "outbox"}}); err != nil {
		panic(err)
	}
	if err := o.NextTerm(ctx); err != nil {
		panic(err)
	}
	for _, state := range o.LastActual() {
		slices.Sort(state.Tasks)
		fmt.Println(state.Name, "runs", state.Tasks)
	}

	stop()
	fmt.Println("server ended:", <-served)
	_ = w.Close(context.Background())
	// Output:
	// w1 runs [inbox outbox]
	// server ended: context canceled
}
