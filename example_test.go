package orchestrator_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

// Four instances of three tasks on two workers, and then on three.
func Example() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil) // workers in this process
	if err != nil {
		panic(err)
	}
	defer cluster.Close(ctx)
	cluster.Start("w1", "w2", "w3")

	o, err := orchestrator.New(cluster, orchestrator.WithSeed(0)) // the same plan in each run
	if err != nil {
		panic(err)
	}
	err = errors.Join(
		o.UpdateTasks([]orchestrator.Task[string]{{Name: "orders", Instances: 2}, {Name: "mail"}, {Name: "billing"}}),
		o.AddWorker("w1"),
		o.AddWorker("w2"),
		o.NextTerm(ctx), // starts two instances on each worker
		o.AddWorker("w3"),
		o.NextTerm(ctx), // moves one of them to w3
	)
	if err != nil {
		panic(err)
	}
	fmt.Print(o.LastPlan())
	// Output:
	// term 2: 1 change: 1 move (rebalance); 1 start, at least 1 needed
	//
	// change  task  from  to  reason     outcome
	// move    mail  w2    w3  rebalance  done
	//
	// worker  state      before  after
	// w1      answering  2       2
	// w2      answering  2       1
	// w3      answering  0       1
}

// A task that only workers with a GPU may run, and one that no worker may run.
func ExampleWithTaskRequires() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1", "w2")
	defer cluster.Close(ctx)
	o, err := orchestrator.New(cluster, orchestrator.WithSeed(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	err = errors.Join(
		o.AddWorker("w1", orchestrator.WithWorkerLabels("gpu")),
		o.AddWorker("w2"),
		o.AddTask("render", orchestrator.WithTaskRequires("gpu")),
		o.AddTask("mail", orchestrator.WithTaskRequires("!gpu")),
		o.AddTask("train", orchestrator.WithTaskRequires("tpu")),
		o.NextTerm(ctx),
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, change := range o.LastPlan().Changes {
		fmt.Println(change.Kind.Op, change.Task, "on", change.To)
	}
	for _, waiting := range o.LastPlan().Waiting {
		fmt.Println(waiting.Task, "has no place:", waiting.Causes)
	}
	// Unordered output:
	// start render on w1
	// start mail on w2
	// train has no place: of 2 open workers 2 lack "tpu"
}

// What would happen without w2, and with a worker more?
func ExampleOrchestrator_Plan() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1", "w2")
	defer cluster.Close(ctx)
	o, err := orchestrator.New(cluster, orchestrator.WithSeed(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = o.UpdateWorkers([]orchestrator.Worker[string]{{Name: "w1"}, {Name: "w2"}})
	_ = o.UpdateTasks([]orchestrator.Task[string]{{Name: "orders"}, {Name: "mail"}, {Name: "search", Instances: 2}})
	if err := o.NextTerm(ctx); err != nil {
		fmt.Println(err)
	}

	plan, err := o.Plan(orchestrator.Hypothesis[string, string]{
		Lose:       []string{"w2"},
		AddWorkers: []orchestrator.Worker[string]{{Name: "w3"}},
	})
	fmt.Print(plan, "error: ", err)
	// Output:
	// term 2: 2 changes: 2 start (lost); 2 starts, at least 2 needed
	//
	// change  task    from  to  reason     outcome
	// start   mail    -     w3  lost (w2)  planned
	// start   search  -     w3  lost (w2)  planned
	//
	// worker  state      before  after
	// w1      answering  2       2
	// w2      lost       0       0
	// w3      answering  0       2
	// error: <nil>
}

// A look at a cluster before its leader goes live. Nothing starts or stops.
func ExampleWithDryRun() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1", "w2")
	defer cluster.Close(ctx)
	_ = cluster.Add(ctx, "w1", "orders")
	_ = cluster.Add(ctx, "w1", "mail")
	_ = cluster.Add(ctx, "w1", "old")

	o, err := orchestrator.New(cluster, orchestrator.WithDryRun(), orchestrator.WithSeed(0))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = o.UpdateWorkers([]orchestrator.Worker[string]{{Name: "w1"}, {Name: "w2"}})
	_ = o.UpdateTasks([]orchestrator.Task[string]{{Name: "orders"}, {Name: "mail"}, {Name: "search", Instances: 2}})
	if err := o.NextTerm(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Print(o.LastPlan())
	fmt.Println("w1 runs", len(cluster.RunsOn("w1")), "tasks")
	// Output:
	// term 1: 4 changes: 1 move (rebalance), 2 start (missing), 1 stop (unexpected); 3 starts, at least 3 needed
	//
	// change  task    from  to  reason      outcome
	// start   search  -     w2  missing     dry
	// start   search  -     w1  missing     dry
	// move    orders  w1    w2  rebalance   dry
	// stop    old     w1    -   unexpected  dry
	//
	// worker  state      before  after
	// w1      answering  3       2
	// w2      answering  0       2
	// w1 runs 3 tasks
}

// A worker is to go: first its tasks move away, then it can be stopped.
func ExampleOrchestrator_DrainWorker() {
	ctx := context.Background()
	cluster, err := memory.New[string, string](nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	cluster.Start("w1", "w2")
	defer cluster.Close(ctx)
	o, err := orchestrator.New(cluster)
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = o.UpdateWorkers([]orchestrator.Worker[string]{{Name: "w1"}, {Name: "w2"}})
	_ = o.UpdateTasks([]orchestrator.Task[string]{{Name: "orders"}, {Name: "mail"}})
	if err := o.NextTerm(ctx); err != nil {
		fmt.Println(err)
	}

	if err := o.DrainWorker("w1"); err != nil {
		fmt.Println(err)
	}
	if err := o.NextTerm(ctx); err != nil {
		fmt.Println(err)
	}
	for _, change := range o.LastPlan().Changes {
		fmt.Println(change.Kind, change.From, "→", change.To, change.Outcome)
	}
	if len(cluster.RunsOn("w1")) == 0 {
		cluster.Kill("w1")
		o.RemoveWorker("w1")
	}
	for _, w := range o.LastActual() {
		fmt.Println(w.Name, len(w.Tasks), "tasks")
	}
	// Output:
	// move/drain w1 → w2 done
	// w1 0 tasks
	// w2 2 tasks
}
