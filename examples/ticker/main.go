// Ticker is a minimal use of an orchestrator: it calls NextTerm on a ticker, with an
// in-memory cluster in place of a network.
//
//	go run ./examples/ticker
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

func main() {
	cluster, err1 := memory.New[string, string](nil) // its tasks only wait
	o, err2 := orchestrator.New(cluster)
	if err := errors.Join(err1, err2); err != nil {
		fmt.Fprintln(os.Stderr, "ticker:", err)
		os.Exit(1)
	}
	for _, worker := range []string{"alice", "bob", "carol"} {
		cluster.Start(worker)
		_ = o.AddWorker(worker) // fails only for invalid options
	}
	for _, task := range []string{"mail", "news", "shop"} {
		_ = o.AddTask(task, orchestrator.WithTaskInstances(2))
	}
	tick := time.NewTicker(100 * time.Millisecond)
	for term := range 3 {
		<-tick.C
		if err := o.NextTerm(context.Background()); err != nil {
			fmt.Println(err) // the next term retries
		}
		for _, worker := range o.LastActual() {
			fmt.Printf("term %d: %-5s is %v and runs %v\n", term+1, worker.Name, worker.State, worker.Tasks)
		}
		_ = o.DrainWorker("alice") // from the next term on
	}
}
