// Manager gives real work to worker processes over gRPC with mutual TLS: first tasks
// that end, then tasks that do not.
//
//	go run ./examples/manager
//
// With -dashboard 127.0.0.1:8080 it serves a dashboard, which command orchctl reads too.
//
// This process is the manager. It starts three workers as processes. They count the
// words of texts, two at a time on each worker. Then they follow logs that grow, as
// tail -f does, while one worker leaves and another joins. At the end this process
// checks that every text was counted, and that every line was followed exactly once.
//
// Read manager.go for how to run a manager, worker.go for how to run a worker and how
// it leaves, and tasks.go for tasks that may be stopped, moved and run again at any
// time. This file has the demonstration.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	texts     = 12
	growEvery = 20 * time.Millisecond
	lookEvery = 50 * time.Millisecond
	// watchTime is how long the logs are followed before the next event.
	watchTime = 2 * time.Second
	// timeout is the longest time to wait for anything.
	timeout = 30 * time.Second
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("manager", func(leave context.Context) error { return workerMain(leave, role) })
	}
	dashboard := flag.String("dashboard", "", "the `address` of a dashboard (default: none)")
	flag.Parse()
	stage.Main("manager", func(ctx context.Context) error { return run(ctx, *dashboard, os.Stdout, os.Stderr) })
}

// run runs the demonstration in a temporary folder. It ends all its processes and
// removes all its files.
func run(ctx context.Context, dashboard string, stdout, stderr io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "manager-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := certify(dir, "w1", "w2", "w3", "w4"); err != nil {
		return err
	}
	log := stage.NewLog(stdout)
	m, err := startManager(dir, log, stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.stop()) }()
	log.Say("the manager is process %d, at %s", os.Getpid(), m.address)
	if dashboard != "" {
		b, err := startBoard(dashboard, m.Manager)
		if err != nil {
			return err
		}
		defer b.end()
		log.Say("the dashboard is at %s", b.address)
	}
	d := &demonstration{
		manager: m, dir: dir, log: log, stderr: stderr, workers: make(map[string]*stage.Process), leaving: make(map[string]bool),
	}
	defer d.end()
	return d.run(ctx)
}

// demonstration is the manager, its worker processes, and the files of their tasks.
type demonstration struct {
	manager *runningManager
	dir     string
	log     *stage.Log
	stderr  io.Writer
	workers map[string]*stage.Process // without those that have left
	leaving map[string]bool
}

func (d *demonstration) run(ctx context.Context) error {
	if err := d.join(ctx, "w1", "w2", "w3"); err != nil {
		return err
	}

	d.log.Title("1/4  count the words of %d texts, %d at a time on each worker", texts, slots)
	if err := d.count(ctx); err != nil {
		return err
	}

	logs := []string{"east", "inner", "north", "outer", "south", "west"}
	d.log.Title("2/4  follow %d logs that grow", len(logs))
	stopGrowing, err := d.grow(logs)
	if err != nil {
		return err
	}
	defer stopGrowing()
	var items []manager.Item
	for _, name := range logs {
		items = append(items, content{From: d.file(name, "log"), To: d.file(name, "followed")}.item(followPrefix+name))
	}
	if _, err := d.manager.PutAll(ctx, items); err != nil {
		return err
	}
	if err := d.follow(ctx, len(logs)); err != nil {
		return err
	}

	d.log.Title("3/4  w2 is told to leave (SIGTERM): its tasks move first")
	if err := d.leave(ctx, "w2"); err != nil {
		return err
	}
	if err := d.follow(ctx, len(logs)); err != nil {
		return err
	}

	d.log.Title("4/4  w4 joins: it gets its share, and no other task moves")
	if err := d.join(ctx, "w4"); err != nil {
		return err
	}
	if err := d.follow(ctx, len(logs)); err != nil {
		return err
	}

	d.log.Title("the logs stop growing, and all workers leave")
	stopGrowing()
	if err := d.until(ctx, func() error { return d.compare(logs) }); err != nil {
		return err
	}
	if err := d.leave(ctx, "w1", "w3", "w4"); err != nil {
		return err
	}
	d.log.Title("the end: %d texts counted, %d logs followed, each line once", texts, len(logs))
	return d.compare(logs)
}

// file returns the path of a file.
func (d *demonstration) file(name, kind string) string {
	return filepath.Join(d.dir, name+"."+kind)
}

// count makes texts and tasks that count their words, waits until the tasks have
// completed, and checks the results.
func (d *demonstration) count(ctx context.Context) error {
	var items []manager.Item
	want := make(map[string]string) // by file
	for i := range texts {
		name, lines := fmt.Sprintf("text%02d", i+1), 3+i
		if err := os.WriteFile(d.file(name, "txt"), []byte(strings.Repeat("one line has five words\n", lines)), 0o600); err != nil {
			return err
		}
		c := content{From: d.file(name, "txt"), To: d.file(name, "count")}
		items = append(items, c.item(countPrefix+name))
		want[c.To] = fmt.Sprint(5 * lines)
	}
	if _, err := d.manager.PutAll(ctx, items); err != nil {
		return err
	}
	err := d.until(ctx, func() error {
		done, err := d.manager.Completed("", manager.MaxList)
		if err == nil && len(done) < texts {
			err = fmt.Errorf("%d of %d texts are counted", len(done), texts)
		}
		return err
	})
	if err != nil {
		return err
	}
	for file, words := range want {
		if got, err := os.ReadFile(file); err != nil || string(got) != words {
			return errors.Join(fmt.Errorf("%s has %q, want %s", file, got, words), err)
		}
	}
	d.log.Say("all texts are counted")
	return nil
}

// grow makes logs that grow until stop is called.
func (d *demonstration) grow(names []string) (stop func(), err error) {
	var files []*os.File
	for _, name := range names {
		f, err := os.Create(d.file(name, "log"))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for line := 1; pause(ctx, growEvery); line++ {
			for _, f := range files {
				_, _ = fmt.Fprintf(f, "line %d\n", line) // compare finds a lost line
			}
		}
		for _, f := range files {
			_ = f.Close()
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// compare returns an error if a log and what was followed of it differ.
func (d *demonstration) compare(logs []string) error {
	for _, name := range logs {
		written, err1 := os.ReadFile(d.file(name, "log"))
		followed, err2 := os.ReadFile(d.file(name, "followed"))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		if !bytes.Equal(written, followed) {
			return fmt.Errorf("%s has %d bytes, and %d were followed", name, len(written), len(followed))
		}
	}
	return nil
}

// follow waits until the tasks are spread evenly over the workers and each worker uses
// its slots, prints which worker runs which, and lets some time pass.
func (d *demonstration) follow(ctx context.Context, tasks int) error {
	var lines []string
	err := d.until(ctx, func() error {
		lines = nil
		actual := d.manager.LastActual()
		if len(actual) != len(d.workers) {
			return fmt.Errorf("%d workers are members, want %d", len(actual), len(d.workers))
		}
		for _, w := range actual {
			var runs, waits []string
			for _, t := range d.manager.Tasks(w.Name) {
				switch t.State {
				case worker.Running:
					runs = append(runs, strings.TrimPrefix(t.Name, followPrefix))
				case worker.Queued:
					waits = append(waits, strings.TrimPrefix(t.Name, followPrefix))
				}
			}
			share := tasks / len(d.workers)
			if len(runs) != min(share, slots) || len(runs)+len(waits) != share {
				return fmt.Errorf("%v runs %v, and %v wait", w.Name, runs, waits)
			}
			slices.Sort(runs)
			line := fmt.Sprintf("%v follows %s", w.Name, strings.Join(runs, " "))
			if len(waits) > 0 {
				line += "; waiting for a slot: " + strings.Join(waits, " ")
			}
			lines = append(lines, line)
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, line := range lines {
		d.log.Say("%s", line)
	}
	if !pause(ctx, watchTime) {
		return context.Cause(ctx)
	}
	return nil
}

// join starts worker processes, and returns when they are members.
func (d *demonstration) join(ctx context.Context, names ...string) error {
	for _, name := range names {
		// The processes leave by SIGTERM, also after an interrupt.
		p, err := stage.Start(context.WithoutCancel(ctx), role(name, d.manager.address, d.dir), stopTime, nil, d.stderr)
		if err != nil {
			return err
		}
		d.workers[name] = p
		d.log.Say("%s is process %d", name, p.PID())
	}
	return d.until(ctx, func() error {
		if n := d.manager.MemberCount(); n != len(d.workers) {
			return fmt.Errorf("%d workers are members, want %d", n, len(d.workers))
		}
		return nil
	})
}

// leave tells worker processes to leave, and returns when they have ended.
func (d *demonstration) leave(ctx context.Context, names ...string) error {
	for _, name := range names {
		d.leaving[name] = true
		if err := d.workers[name].Signal(syscall.SIGTERM); err != nil {
			return err
		}
	}
	for _, name := range names {
		p := d.workers[name]
		err := d.until(ctx, func() error {
			if !p.HasEnded() {
				return fmt.Errorf("%s has not left", name)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.Err(); err != nil {
			return fmt.Errorf("%s has left: %w", name, err)
		}
		p.Stop()
		delete(d.workers, name)
		d.log.Say("%s has left", name)
	}
	return nil
}

// end makes the remaining workers leave. It kills those that take long.
func (d *demonstration) end() {
	for _, p := range d.workers {
		_ = p.Signal(syscall.SIGTERM) // it may have ended
	}
	late := time.After(leaveTime)
	for _, p := range d.workers {
		select {
		case <-p.Ended():
		case <-late:
		}
		p.Stop()
	}
}

// until calls done repeatedly until it returns nil. It fails if the manager or a
// worker process ends, or after timeout with the last error.
func (d *demonstration) until(ctx context.Context, done func() error) error {
	for began := time.Now(); ; {
		err := done()
		if err == nil {
			return nil
		}
		if time.Since(began) > timeout {
			return fmt.Errorf("after %v: %w", timeout, err)
		}
		if !pause(ctx, lookEvery) {
			return context.Cause(ctx)
		}
		if d.manager.hasEnded() {
			return errors.New("the manager has ended")
		}
		for name, p := range d.workers {
			if p.HasEnded() && !d.leaving[name] {
				return errors.Join(fmt.Errorf("%s has ended", name), p.Err())
			}
		}
	}
}

// showChanges prints the changes of a term. It omits those of completed tasks.
func showChanges(log *stage.Log, p plan) {
	var changes []orchestrator.Change[grpcWorker, string]
	for _, c := range p.Changes {
		completed := c.Kind.Reason == orchestrator.ReasonUnexpected || errors.Is(c.Err, orchestrator.ErrStale)
		if !completed {
			_, c.Task, _ = strings.Cut(c.Task, "/")
			changes = append(changes, c)
		}
	}
	stage.SayChanges(log, changes)
}
