// Dashboard shows the dashboard of a fleet in which something always goes wrong: workers
// drain, hang, restart without their tasks, refuse starts because their disk is full, or
// crash; a task that no worker can start comes and goes.
//
//	go run ./examples/dashboard
//
// The fleet and its network are in this process. Everything that the pages show comes from
// terms of a real orchestrator. Drain a worker on its page, or ask on the page "What if" what
// would happen.
//
//	-addr ADDRESS           where to serve (127.0.0.1:0, which is any free port)
//	-every D                the interval of the terms, and the unit of all faults (1s)
//	-faults=false, -seed N  nothing goes wrong; the order of the faults and their workers (1)
//	-workers N, -tasks N    the size of the fleet (12 and 300)
//
// With -workers 10000 -tasks 1000000 the first term takes half a minute, and the program 5 GB.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

func main() {
	var s settings
	flag.StringVar(&s.addr, "addr", stage.Loopback, "where to serve; an `address` on loopback only")
	flag.DurationVar(&s.every, "every", time.Second, "the interval of the terms")
	flag.BoolVar(&s.faults, "faults", true, "make things go wrong")
	flag.Uint64Var(&s.seed, "seed", 1, "the seed of the faults")
	flag.IntVar(&s.workers, "workers", 12, "the number of workers")
	flag.IntVar(&s.tasks, "tasks", 300, "the number of tasks")
	flag.Parse()
	stage.Main("dashboard", func(ctx context.Context) error {
		switch {
		case flag.NArg() > 0:
			return fmt.Errorf("unexpected argument %q", flag.Arg(0))
		case s.every <= 0:
			return fmt.Errorf("-every is %v: must be positive", s.every)
		case s.workers < 6 || s.tasks < 1:
			return errors.New("too small: needs 6 workers and 1 task")
		}
		return run(ctx, s, os.Stdout)
	})
}

type settings struct {
	addr           string
	every          time.Duration
	faults         bool
	seed           uint64
	workers, tasks int
}

// fleet is an orchestrator and its workers.
type fleet struct {
	*orchestrator.Orchestrator[string, string]
	cluster *memory.Cluster[string, string]
	names   []string // of the workers

	full atomic.Pointer[string] // the worker whose disk is full
}

// run serves the dashboard of a fleet until ctx ends.
func run(ctx context.Context, s settings, out io.Writer) (err error) {
	f, err := newFleet(s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.cluster.Close(context.WithoutCancel(ctx))) }()
	// These lines are all that a program needs to have a dashboard.
	pages, err := dashboard.New(
		dashboard.WithTitle("example fleet"),
		dashboard.WithTaskStates(f.taskStates),
		dashboard.WithDrain(f.drain, f.undrain),
	)
	if err != nil {
		return err
	}
	defer dashboard.Lead(pages, f)()

	server, err := stage.Serve(s.addr, pages)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if _, err := fmt.Fprintln(out, server.URL+"/"); err != nil {
		return err
	}
	var faults sync.WaitGroup
	defer faults.Wait()
	if s.faults {
		faults.Go(func() { f.goWrong(ctx, s) })
	}
	return f.Run(ctx, s.every)
}

// poison is a task that no worker can start.
const poison = "tenant-poison"

// newFleet starts the workers, which have no tasks yet.
func newFleet(s settings) (*fleet, error) {
	f := &fleet{}
	var err1, err2 error
	f.cluster, err1 = memory.New(runTask)
	f.Orchestrator, err2 = orchestrator.New(f.cluster,
		orchestrator.WithCommunicatorTimeout(time.Second+time.Duration(s.tasks)*50*time.Microsecond),
		orchestrator.WithGracePeriod(10*s.every),
		orchestrator.WithMaxMoves(max(10, s.tasks/20)),
	)
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	f.cluster.Refuse(func(op orchestrator.Op, worker, task string) error {
		full := f.full.Load()
		switch {
		case op != orchestrator.OpAdd:
			return nil
		case task == poison:
			return fmt.Errorf("%w: schema version 9 is not known", orchestrator.ErrRejected)
		case full != nil && worker == *full:
			return fmt.Errorf("%w: no space left on device", orchestrator.ErrRejected)
		}
		return nil
	})
	workers := make([]orchestrator.Worker[string], s.workers)
	for i := range workers {
		workers[i].Name = "worker-" + number(i+1, s.workers)
		f.names = append(f.names, workers[i].Name)
	}
	f.cluster.Start(f.names...)
	tasks := make([]orchestrator.Task[string], s.tasks)
	for i := range tasks {
		tasks[i] = orchestrator.Task[string]{Name: "tenant-" + number(i+1, s.tasks), Instances: 1}
		switch {
		case i%20 == 7:
			tasks[i].Instances = 2
		case i%50 == 13:
			tasks[i].Instances = 3
		}
	}
	return f, errors.Join(f.UpdateWorkers(workers), f.UpdateTasks(tasks))
}

// number returns n with as many digits as most has.
func number(n, most int) string { return fmt.Sprintf("%0*d", len(strconv.Itoa(most)), n) }

// runTask waits until its context ends, but every hundredth tenant fails now and then.
func runTask(ctx context.Context, _, task string) error {
	var fails <-chan time.Time // never
	if strings.HasSuffix(task, "42") {
		fails = time.After(10 * time.Second)
	}
	select {
	case <-ctx.Done():
		return nil
	case <-fails:
		return errors.New("connect to database: connection refused")
	}
}

// taskStates returns what a worker says of its tasks.
func (f *fleet) taskStates(name string) []dashboard.TaskState[string] {
	w := f.cluster.Worker(name)
	if w == nil {
		return nil
	}
	var states []dashboard.TaskState[string]
	for _, status := range w.Status() {
		state := dashboard.TaskState[string]{Task: status.Task, State: status.State.String(), Attempts: status.Attempts, Since: status.Since, Failing: status.Failing}
		if status.Err != nil {
			state.Err = status.Err.Error()
		}
		states = append(states, state)
	}
	return states
}

func (f *fleet) drain(_ context.Context, worker string) error   { return f.DrainWorker(worker) }
func (f *fleet) undrain(_ context.Context, worker string) error { return f.UndrainWorker(worker) }

// fault is what goes wrong with a worker for a while, counted in steps.
type fault struct {
	steps      int
	begin, end func(worker string)
}

// step is how many intervals pass from one fault to the next.
const step = 4

// goWrong makes one fault after the other begin, and end after its steps, until ctx ends.
// Each occurs once before any occurs again. A worker has one at a time.
func (f *fleet) goWrong(ctx context.Context, s settings) {
	faults := []fault{
		{3, func(w string) { _ = f.DrainWorker(w) }, func(w string) { _ = f.UndrainWorker(w) }},
		{2, func(w string) { f.cluster.Hang(w) }, func(w string) { f.cluster.Heal(w) }},
		{1, func(w string) { f.cluster.Start(w) }, func(string) {}},                      // it has lost its tasks
		{5, func(w string) { f.cluster.Kill(w) }, func(w string) { f.cluster.Start(w) }}, // it is lost
		{5, func(w string) { f.full.Store(&w); f.cluster.Start(w) }, func(string) { f.full.Store(nil) }},
		{3, func(string) { _ = f.AddTask(poison) }, func(string) { f.RemoveTask(poison) }},
	}
	random := rand.New(rand.NewPCG(s.seed, 0))
	hit := make(map[string]func()) // how the fault of a worker ends
	ends := make(map[int][]string) // the workers whose fault ends, by step
	tick := time.NewTicker(step * s.every)
	defer tick.Stop()
	for n := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if f.Last() == nil {
			continue // the first term of a large fleet takes a while
		}
		for _, worker := range ends[n] {
			hit[worker]()
			delete(hit, worker)
		}
		delete(ends, n)
		next := n % len(faults)
		if next == 0 {
			random.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		}
		worker := f.names[random.IntN(len(f.names))]
		for hit[worker] != nil {
			worker = f.names[random.IntN(len(f.names))]
		}
		fault := faults[next]
		fault.begin(worker)
		hit[worker] = func() { fault.end(worker) }
		ends[n+fault.steps] = append(ends[n+fault.steps], worker)
		n++
	}
}
