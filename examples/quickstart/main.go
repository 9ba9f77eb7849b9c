// Quickstart watches HTTP endpoints with a fleet of worker processes. It shows what
// an orchestrator does while one worker is killed, one joins, one is drained, and
// endpoints are added and removed.
//
//	go run ./examples/quickstart
//
// The first time, Go compiles for about half a minute before the first line.
//
// Each endpoint is a task with two instances, so two workers probe it. Every worker
// is a separate process with its own loopback port. The leader calls it through a
// Communicator over net/http, which is part of this example.
//
// Read the files in this order. communicator.go shows how to write your own
// transport. leader.go calls NextTerm on a ticker. worker.go is a worker. The tests
// check the Communicator with communicatortest.Run.
//
//	-tasks FILE     watch your own endpoints: a CSV file of name,url,instances
//	-workers N      begin with that many workers (4)
//	-duration D     the minimum duration (30s)
//	-metrics ADDR   serve /metrics there, and continue until interrupted
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/stats"
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("quickstart", func(context.Context) error { return workerMain(role) })
	}
	stage.Main("quickstart", func(ctx context.Context) error {
		s, err := parse(os.Args[1:])
		if err != nil {
			return err
		}
		return run(ctx, s, os.Stdout, os.Stderr)
	})
}

// settings holds the flags.
type settings struct {
	tasks   []task // nil: the endpoints of the demonstration
	workers int
	lasts   time.Duration
	metrics string
}

func parse(args []string) (settings, error) {
	var s settings
	var file string
	flags := flag.NewFlagSet("quickstart", flag.ExitOnError)
	flags.StringVar(&file, "tasks", "", "watch the endpoints of this `file`: lines of name,url,instances")
	flags.IntVar(&s.workers, "workers", 4, "begin with `n` workers, from 3 to 100")
	flags.DurationVar(&s.lasts, "duration", 30*time.Second, "the minimum duration; it takes longer if the fleet does")
	flags.StringVar(&s.metrics, "metrics", "", "serve /metrics at this `address`, and continue until interrupted")
	if err := flags.Parse(args); err != nil {
		return s, err
	}
	switch {
	case flags.NArg() > 0:
		return s, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case s.workers < 3 || s.workers > 100:
		return s, fmt.Errorf("-workers is %d: want 3 to 100, because one is killed, one is drained, and each endpoint needs two", s.workers)
	case s.lasts < 0:
		return s, fmt.Errorf("-duration is %v: must not be negative", s.lasts)
	case file == "":
		return s, nil
	}
	tasks, err := readTasks(file)
	if err != nil {
		return s, fmt.Errorf("-tasks: %w", err)
	}
	for _, t := range tasks {
		if t.Instances >= s.workers {
			return s, fmt.Errorf("-tasks: %v wants %d instances, but with -workers %d there are sometimes only %d workers", t.Name, t.Instances, s.workers, s.workers-1)
		}
	}
	s.tasks = tasks
	return s, nil
}

// run runs the demonstration, and ends all its processes.
func run(ctx context.Context, s settings, stdout *os.File, stderr io.Writer) (err error) {
	began := time.Now()
	reg := prometheus.NewRegistry()
	collector, err := stats.Register(reg)
	if err != nil {
		return err
	}
	var pages *stage.Server
	if s.metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
		if pages, err = stage.Serve(s.metrics, mux); err != nil {
			return fmt.Errorf("-metrics: %w", err)
		}
		defer func() { err = errors.Join(err, pages.Close()) }()
	}
	l, err := newLeader(s.tasks != nil, stderr, orchestrator.WithStats(collector.Observe))
	if err != nil {
		return err
	}
	defer l.close()
	target, err := stage.Serve(stage.Loopback, newTarget(l.ledger.probed))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	if err := l.show(ctx, s, target.URL, newView(stdout, began), pages); err != nil {
		return err
	}
	if _, err := io.WriteString(stdout, l.summary(time.Since(began))); err != nil || pages == nil {
		return err
	}
	l.view = &plain{out: stdout, began: began}
	l.view.chapter("the fleet and " + pages.URL + "/metrics continue until interrupted")
	if err := l.until(ctx, forever, l.settled); ctx.Err() == nil {
		return err
	}
	return nil
}

// show runs the demonstration in a view, which it always closes.
func (l *leader) show(ctx context.Context, s settings, base string, v view, pages *stage.Server) error {
	defer v.close()
	l.view = v
	if pages != nil {
		v.say("metrics are at " + pages.URL + "/metrics")
	}
	return l.tell(ctx, s, base)
}
