// Placement shows rules for where tasks run, and what becomes of them: two zones, a pool of
// GPUs, and tenants of very different weight.
//
//	go run ./examples/placement
//
// It needs no set-up. This process is a manager, and each worker is a process of its own. A
// zone is killed and comes back, a tenant grows tenfold, and a worker loses its GPU. After each
// event this process says what moved, what did not, and why, and it checks the rules.
//
// Read worker.go for how a worker gets its zone and its labels, and the tasks below for what
// they require.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const (
	termEvery = 200 * time.Millisecond
	// timeout is the longest time to wait for the result of an event.
	timeout = 30 * time.Second
)

// The workers: three in each of two zones, one of them with a GPU.
var workers = map[string]orchestrator.WorkerSettings{
	"e1": {Zone: "east"}, "e2": {Zone: "east"}, "e3": {Zone: "east", Labels: []string{"gpu"}},
	"w1": {Zone: "west"}, "w2": {Zone: "west"}, "w3": {Zone: "west", Labels: []string{"gpu"}},
}

// tasks returns the tasks: tenants that weigh from 1 to 30, a front end in both zones, and
// renderers that need a GPU.
func tasks() []manager.Item {
	items := []manager.Item{{Name: "front", Settings: orchestrator.TaskSettings{Instances: 2, Weight: 10}}}
	for i := range 4 {
		items = append(items, manager.Item{
			Name: fmt.Sprint("render-", i+1), Settings: orchestrator.TaskSettings{Requires: []string{"gpu"}, Weight: 5},
		})
	}
	for i := range 20 {
		items = append(items, manager.Item{
			Name: fmt.Sprint("tenant-", i+1), Settings: orchestrator.TaskSettings{Weight: int64(30 / (i + 1))},
		})
	}
	return items
}

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("placement", func(leave context.Context) error { return workerMain(leave, role) })
	}
	stage.Main("placement", func(ctx context.Context) error { return run(ctx, os.Stdout, os.Stderr) })
}

type (
	snapshot = orchestrator.Snapshot[grpc.WorkerID, string]
	change   = orchestrator.Change[grpc.WorkerID, string]
)

// story makes things happen to the workers, and says what becomes of the tasks.
type story struct {
	log       *stage.Log
	stderr    io.Writer
	manager   *manager.Manager
	address   string
	terms     chan *snapshot
	processes map[string]*stage.Process
	settings  map[string]orchestrator.WorkerSettings // of the workers that should be there
	weights   map[string]int64
	last      *snapshot       // of the term after which nothing changed
	moved     map[string]bool // the tasks with a change since the last event
	changing  int             // terms with a change since the last event
}

// run tells the story. It ends all its processes.
func run(ctx context.Context, stdout, stderr io.Writer) (err error) {
	s := &story{
		log: stage.NewLog(stdout), stderr: stderr, terms: make(chan *snapshot, 1024),
		processes: make(map[string]*stage.Process), settings: make(map[string]orchestrator.WorkerSettings), weights: make(map[string]int64),
	}
	s.manager, err = manager.New(manager.NewMemoryStore(), grpc.WithPlaintext(), manager.WithInterval(termEvery),
		grpc.WithLogger(slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError}))))
	if err != nil {
		return err
	}
	defer s.manager.OnTerm(func(term *snapshot) { s.terms <- term })()
	listener, err := net.Listen("tcp", stage.Loopback)
	if err != nil {
		return err
	}
	s.address = listener.Addr().String()
	ctx, end := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- s.manager.Run(ctx, listener) }()
	defer func() {
		for _, p := range s.processes {
			p.Stop()
		}
		end()
		for {
			select {
			case <-s.terms: // so that no term waits for a reader
			case stopped := <-ran:
				if !errors.Is(stopped, context.Canceled) {
					err = errors.Join(err, stopped)
				}
				return
			}
		}
	}()
	return s.tell(ctx)
}

// tell tells the story.
func (s *story) tell(ctx context.Context) error {
	for _, c := range []struct {
		title string
		event func(ctx context.Context) error
	}{
		{"1/5  six workers in two zones, and 25 tasks", s.begin},
		{"2/5  zone west is killed (SIGKILL)", s.killZone},
		{"3/5  zone west is back", s.restoreZone},
		{"4/5  a tenant grows tenfold", s.grow},
		{"5/5  e3 loses its GPU, and a task requires what no worker has", s.loseGPU},
	} {
		s.log.Title("%s", c.title)
		s.moved, s.changing = make(map[string]bool), 0
		if err := c.event(ctx); err != nil {
			return err
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	s.log.Title("the end: no rule was broken")
	return nil
}

func (s *story) begin(ctx context.Context) error {
	if err := s.start(ctx, workers); err != nil {
		return err
	}
	items := tasks()
	for _, item := range items {
		s.weights[item.Name] = item.Settings.Weight
	}
	_, err := s.manager.PutAll(ctx, items)
	return err
}

// inWest returns the workers of zone west.
func inWest() map[string]orchestrator.WorkerSettings {
	west := maps.Clone(workers)
	maps.DeleteFunc(west, func(_ string, w orchestrator.WorkerSettings) bool { return w.Zone != "west" })
	return west
}

func (s *story) killZone(context.Context) error {
	s.log.Say("its tasks run in zone east when the leases of its workers have expired; front has " +
		"no second zone now: two instances in one zone are better than one, so it runs on two workers there")
	for name := range inWest() {
		if err := s.processes[name].Signal(syscall.SIGKILL); err != nil {
			return err
		}
		<-s.processes[name].Ended()
		delete(s.processes, name)
		delete(s.settings, name)
	}
	return nil
}

func (s *story) restoreZone(ctx context.Context) error { return s.start(ctx, inWest()) }

// grow lets the lightest tenant grow of the worker in zone east that has the most tasks. What has
// just moved to zone west for an even spread rests for a minute.
func (s *story) grow(context.Context) error {
	var most []string
	for w := range s.last.Workers() {
		if w.Settings.Zone == "east" && len(w.Tasks) > len(most) {
			most = w.Tasks
		}
	}
	hot := ""
	for _, task := range most {
		if strings.HasPrefix(task, "tenant") && (hot == "" || s.weights[task] < s.weights[hot]) {
			hot = task
		}
	}
	s.weights[hot] *= 10
	s.log.Say("%s weighs %d: only workers that leave their band give or take something", hot, s.weights[hot])
	return s.manager.UpdateWeights(map[string]int64{hot: s.weights[hot]})
}

// loseGPU starts worker e3 again without its label.
func (s *story) loseGPU(ctx context.Context) error {
	p := s.processes["e3"]
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	<-p.Ended()
	delete(s.settings, "e3")
	s.weights["train"] = 5
	_, err := s.manager.Put(ctx, manager.Item{Name: "train", Settings: orchestrator.TaskSettings{Requires: []string{"tpu"}, Weight: 5}})
	if err != nil {
		return err
	}
	return s.start(ctx, map[string]orchestrator.WorkerSettings{"e3": {Zone: "east"}})
}

// start starts workers.
func (s *story) start(ctx context.Context, workers map[string]orchestrator.WorkerSettings) error {
	for _, name := range slices.Sorted(maps.Keys(workers)) {
		p, err := stage.Start(context.WithoutCancel(ctx), roleOf(name, s.address, workers[name]), lease, nil, s.stderr)
		if err != nil {
			return err
		}
		s.processes[name], s.settings[name] = p, workers[name]
	}
	return nil
}

// settle waits until the workers are those that should be there and a term changes nothing
// more. It says what moved, and what each worker has.
func (s *story) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("no rest within %v", timeout))
	defer cancel()
	for quiet := 0; ; {
		select {
		case term := <-s.terms:
			plan := term.Plan()
			if err := s.check(term); err != nil {
				return err
			}
			s.show(plan.Changes)
			if quiet++; len(plan.Changes) > 0 || !s.hasWorkers(term) || plan.Stats.Instances.Missing > waiting(term) {
				quiet = 0
			}
			if quiet == 3 {
				s.last = term
				s.tellState(term)
				return s.checkShares(term)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// waiting counts the instances that have no place.
func waiting(term *snapshot) (n int) {
	for _, w := range term.Plan().Waiting {
		if w.Reason == orchestrator.ReasonNoPlace {
			n += w.Instances
		}
	}
	return n
}

// hasWorkers reports whether a term has exactly the workers that should be there.
func (s *story) hasWorkers(term *snapshot) bool {
	n := 0
	for w := range term.Workers() {
		want, ok := s.settings[w.Name.Name]
		if !ok || !want.Equal(w.Settings) || w.State != orchestrator.Answering {
			return false
		}
		n++
	}
	return n == len(s.settings)
}

// show says which tasks a term has started and moved.
func (s *story) show(changes []change) {
	done := slices.DeleteFunc(slices.Clone(changes), func(c change) bool { return c.Outcome != orchestrator.OutcomeDone })
	stage.SayChanges(s.log, done)
	s.changing += min(len(done), 1)
	for _, c := range done {
		s.moved[c.Task] = true
	}
}

// check returns an error if the workers run what the rules forbid.
func (s *story) check(term *snapshot) error {
	for w := range term.Workers() {
		for _, task := range w.Tasks {
			if strings.HasPrefix(task, "render") && !slices.Contains(w.Settings.Labels, "gpu") {
				return fmt.Errorf("%s runs on %s, which has no GPU", task, w.Name)
			}
			if task == "train" {
				return errors.New("train runs, and no worker has a TPU")
			}
		}
	}
	return nil
}

// checkShares returns an error if a worker has much less than the others, such as one that has
// just joined. Each has what it should up to the band and the weight of one task.
func (s *story) checkShares(term *snapshot) error {
	for w := range term.Workers() {
		if 2*w.Weight < w.Level {
			return fmt.Errorf("%s has tasks of weight %d, and should have %d", w.Name, w.Weight, w.Level)
		}
	}
	return nil
}

// tellState says how many tasks stayed, what each worker has, and why tasks wait.
func (s *story) tellState(term *snapshot) {
	zones := make(map[string]bool)
	byName := func(a, b orchestrator.WorkerState[grpc.WorkerID, string]) int {
		return strings.Compare(a.Name.Name, b.Name.Name)
	}
	for _, w := range slices.SortedFunc(term.Workers(), byName) {
		if slices.Contains(w.Tasks, "front") {
			zones[w.Settings.Zone] = true
		}
		labels := strings.Join(w.Settings.Labels, " ")
		s.log.Say("%s %s %-3s weighs %2d, level %d: %s", w.Name, w.Settings.Zone, labels, w.Weight, w.Level, strings.Join(slices.Sorted(slices.Values(w.Tasks)), " "))
	}
	for _, w := range term.Plan().Waiting {
		s.log.Say("%s waits, %s: %v", w.Task, w.Reason, w.Causes)
	}
	s.log.Say("%d tasks stayed where they were, changes in %d terms; front runs in %s", len(s.weights)-len(s.moved)-waiting(term), s.changing,
		strings.Join(slices.Sorted(maps.Keys(zones)), " and "))
}
