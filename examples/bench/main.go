//go:build peers

// Command bench measures this library beside other planners and assignment systems,
// and beside a plain scan called the floor. Run it in the root of the repository.
//
//	go run -tags peers ./examples/bench   measure everything and print it, in two hours
//	  -write           and store it: examples/bench/results.json and BENCHMARKS.md
//	  -only grpc,terms only some parts; -write replaces them and keeps the others
//	  -short           of replicas only reaction, load and growth, in few rounds: 20 minutes
//	  -quick           small fleets and few rounds, to check that it works
//	  -stored          measure nothing, print what is stored; -write renders the page
//
// The build tag peers keeps franz-go, sarama and what they import out of go test.
// race.go has the method of measuring and the floor; fleet.go and plans.go have the
// fleets, the events and the comparison of planners. Each other part has its own files.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	workerMain() // does not return in a worker process
	var f flags
	flag.BoolVar(&f.write, "write", false, "store the results in "+resultsFile+" and render "+pageFile)
	flag.BoolVar(&f.quick, "quick", false, "small fleets and few rounds: checks that it works, and shows nothing about speed")
	flag.BoolVar(&f.short, "short", false, "measure of replicas only reaction, the load of up to 100, and growth, in few rounds")
	flag.BoolVar(&f.stored, "stored", false, "measure nothing, use the stored results")
	flag.StringVar(&f.only, "only", "", "measure only these `parts`: some of "+strings.Join(names(), ","))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, f); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

type flags struct {
	write, short, quick, stored bool
	only                        string
}

func run(ctx context.Context, f flags) error {
	if f.quick && (f.write || f.stored) {
		return errors.New("-quick cannot be combined with -write or -stored: its figures are not worth keeping")
	}
	if f.stored && f.only != "" {
		return errors.New("-stored cannot be combined with -only: it measures nothing")
	}
	stored, err := load(resultsFile)
	if err != nil {
		return err
	}
	if f.stored {
		if f.write {
			return stored.write()
		}
		return stored.print(os.Stdout)
	}
	cfg := full()
	if f.quick {
		cfg = short()
		fmt.Println("A quick run: small fleets, few rounds. It shows that the command works; its figures mean nothing.")
	}
	cfg.short = f.short
	only := names()
	if f.only != "" {
		only = strings.Split(f.only, ",")
		for _, name := range only {
			if !slices.Contains(names(), name) {
				return fmt.Errorf("-only %s: no part %q; the parts are %s", f.only, name, strings.Join(names(), ", "))
			}
		}
	}
	found, err := measure(ctx, cfg, only)
	if err != nil {
		return err
	}
	if !f.write {
		return found.print(os.Stdout)
	}
	for _, p := range found {
		stored = stored.put(p)
	}
	return errors.Join(found.print(os.Stdout), stored.write())
}

// measurement measures a part.
type measurement struct {
	name    string
	measure func(context.Context, config) (findings, error)
}

// measurements returns those of all parts, in order.
func measurements() []measurement {
	return []measurement{
		{"network", as(measureNetwork)},
		{"grpc", as(measureGRPC)},
		{"reaction", as(measureReactions)},
		{"replicas", as(measureReplicas)},
		{"recruit", as(measureEnlist)},
		{"terms", as(measureTerms)},
		{"largest", as(measureLargest)},
		{"dashboard", as(measureDashboard)},
		{"plans", as(measurePlans)},
		{"placement", as(measurePlacement)},
	}
}

// as returns a function that measures the same with another type of result.
func as[F findings](measure func(context.Context, config) (F, error)) func(context.Context, config) (findings, error) {
	return func(ctx context.Context, cfg config) (findings, error) { return measure(ctx, cfg) }
}

// names returns the names of all parts.
func names() []string {
	var all []string
	for _, m := range measurements() {
		all = append(all, m.name)
	}
	return all
}

// measure measures some parts.
func measure(ctx context.Context, cfg config, only []string) (results, error) {
	var found results
	for _, m := range measurements() {
		if !slices.Contains(only, m.name) {
			continue
		}
		start := time.Now()
		f, err := m.measure(ctx, cfg)
		if errors.Is(err, errMissing) {
			cfg.log("%s: %v", m.name, err)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
		found = append(found, newPart(ctx, m.name, start, f))
	}
	cfg.log("done")
	return found, nil
}

// config selects what is measured, and how often.
type config struct {
	short   bool   // see the flag
	quick   bool   // few calls of Enlist
	plans   []size // for the comparison of planners, in order
	copies  []int  // numbers of copies of each task, besides 1
	big     size   // the size of the goals
	small   size   // a tenth of big, for the growth
	largest size   // the size of the goals for the largest fleet
	old     size   // the largest size at which the old library was measured
	sarama  size   // the only size at which sarama is measured

	rounds        int // of everything except the following
	slowRounds    int // of the comparison of planners for big fleets
	termRounds    int
	largestRounds int
	grpc          grpcConfig
	reaction      reactionConfig
	dashboard     dashboardConfig
	log           func(format string, args ...any)
}

func full() config {
	start := time.Now()
	big := size{1_000_000, 10_000, 1}
	small := size{100_000, 1_000, 1}
	medium := size{10_000, 100, 1}
	return config{
		plans:   []size{{1_000, 10, 1}, medium, small, big},
		copies:  []int{3, 10},
		big:     big,
		small:   small,
		largest: size{10_000_000, 100_000, 1},
		old:     size{20_000, 200, 1},
		sarama:  medium,

		rounds:        21,
		slowRounds:    5,
		termRounds:    11,
		largestRounds: 5,

		grpc: grpcConfig{
			size: small, others: []int{10_000, 1_000_000}, lease: 10 * time.Second, interval: time.Second,
			colds: 2, rounds: 15, fewer: 5, lost: 2, timeout: 2 * time.Minute,
		},
		reaction: reactionConfig{
			over: []transport{
				{memoryTransport, small, 100, 0, 0, startMemorySystem},
				{grpcTransport, medium, 100, 10 * time.Second, time.Second, startGRPCSystem},
			},
			rounds: 100, interval: time.Second, timeout: 2 * time.Minute,
		},
		dashboard: dashboardConfig{rounds: 9, block: 2, interval: time.Second, poll: 2 * time.Second, answers: 3},
		log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}
}

// short is full with small fleets and few rounds.
func short() config {
	cfg := full()
	cfg.quick = true
	cfg.plans = []size{{1_000, 10, 1}, {10_000, 100, 1}}
	cfg.small, cfg.big = cfg.plans[0], cfg.plans[1]
	cfg.largest = size{20_000, 200, 1}
	cfg.old, cfg.sarama = size{2_000, 20, 1}, cfg.small
	cfg.rounds, cfg.slowRounds, cfg.termRounds, cfg.largestRounds = 3, 3, 3, 3
	cfg.grpc = grpcConfig{
		size: size{200, 4, 1}, others: []int{20, 400}, lease: 2 * time.Second, interval: 100 * time.Millisecond,
		colds: 1, rounds: 3, fewer: 3, lost: 1, timeout: time.Minute,
	}
	cfg.dashboard = dashboardConfig{rounds: 2, block: 2, interval: 50 * time.Millisecond, poll: 100 * time.Millisecond, answers: 1}
	cfg.reaction.rounds, cfg.reaction.interval, cfg.reaction.timeout = 2, 500*time.Millisecond, time.Minute
	for i := range cfg.reaction.over {
		t := &cfg.reaction.over[i]
		t.size, t.restarts = size{200, 4, 1}, 2
		if t.lease > 0 {
			t.lease = 2 * time.Second
		}
	}
	return cfg
}

// fieldRounds returns the number of rounds in which planners are compared at a size.
func (cfg config) fieldRounds(s size) int {
	if s.instances >= 1_000_000 {
		return cfg.slowRounds
	}
	return cfg.rounds
}

// field returns the participants in the comparison of planners.
func (cfg config) field() []planner {
	return append([]planner{ours(), oursAtFirst()}, peers(cfg)...)
}
