// Command bench measures this library beside other planners and assignment systems,
// and beside a lower bound called the floor, in one run and in turn.
//
//	go run ./bench                      print the tables
//	go run ./bench -write BENCHMARKS.md and write them to a file: make bench
//	go run ./bench -quick               small fleets and few rounds, to check that it works
//	go run ./bench -etcd                only the part on etcd; -write replaces that part of the file
//	go run ./bench -grpc                the same for the part over gRPC
//	go run ./bench -largest             the same for the largest fleet
//	go run ./bench -reaction all        the same for reaction time; or some of memory,gRPC,etcd
//
// The files:
//
//	measure.go   the method of measuring
//	floor.go     the floor
//	main.go      the participants
//	etcd.go      the measurements on etcd
//	grpc.go      the measurements over gRPC
//	reaction.go  the reaction time
//	goals.go     the goals
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	guestMain() // does not return in a worker process
	write := flag.String("write", "", "the `file` to write the tables to")
	quick := flag.Bool("quick", false, "small fleets and few rounds: checks that it works, and shows nothing about speed")
	var only selection
	flag.BoolVar(&only.etcd, "etcd", false, "measure and write only the part on etcd")
	flag.BoolVar(&only.grpc, "grpc", false, "measure and write only the part over gRPC")
	flag.BoolVar(&only.largest, "largest", false, "measure and write only the part about the largest fleet")
	flag.StringVar(&only.reaction, "reaction", "", "measure only reaction time, over these `transports`: all, or some of memory,gRPC,etcd")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *quick, only, *write); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// selection is the part to measure; the zero value selects everything.
type selection struct {
	etcd, grpc, largest bool
	reaction            string // the transports
}

func run(ctx context.Context, quick bool, only selection, file string) error {
	cfg := full()
	if quick {
		cfg = short()
	}
	if quick && file != "" {
		return errors.New("-quick cannot be combined with -write: its figures are not worth keeping")
	}
	switch only {
	case selection{}:
	case selection{etcd: true}:
		return runEtcd(ctx, cfg, file)
	case selection{grpc: true}:
		return runGRPC(ctx, cfg, file)
	case selection{largest: true}:
		return runLargest(ctx, cfg, file)
	case selection{reaction: only.reaction}:
		return runReaction(ctx, cfg, only.reaction, file)
	default:
		return errors.New("-etcd, -grpc, -largest and -reaction each select one part: use only one of them")
	}
	r, err := measure(ctx, cfg)
	if err != nil {
		return err
	}
	text := r.markdown()
	fmt.Print(text)
	if file == "" {
		return nil
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// config selects what is measured, and how often.
type config struct {
	quick   bool
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
	network       bool // measure a term over a slow network
	etcd          etcdConfig
	grpc          grpcConfig
	reaction      reactionConfig
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

		network: true,
		etcd:    etcdConfig{size: medium, lease: 10 * time.Second, colds: 3, steady: 21, contents: 100, events: 3},
		grpc: grpcConfig{
			size: small, others: []int{10_000, 1_000_000}, lease: 10 * time.Second, interval: time.Second,
			colds: 2, rounds: 15, fewer: 5, lost: 2, patience: 2 * time.Minute,
		},
		reaction: reactionConfig{
			over: []transport{
				{memoryTransport, small, 100, 0, 0, startInMemory},
				{grpcTransport, medium, 100, 10 * time.Second, time.Second, startOnGRPC},
				{etcdTransport, medium, 100, 10 * time.Second, 2 * time.Second, startOnEtcd},
			},
			rounds: 100, interval: time.Second, patience: 2 * time.Minute,
		},
		log: func(format string, args ...any) {
			fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
		},
	}
}

// short is full with small fleets and every step except the network measurement,
// which is a test anyway.
func short() config {
	cfg := full()
	cfg.quick = true
	cfg.plans = []size{{1_000, 10, 1}, {10_000, 100, 1}}
	cfg.small, cfg.big = cfg.plans[0], cfg.plans[1]
	cfg.largest = size{20_000, 200, 1}
	cfg.old, cfg.sarama = size{2_000, 20, 1}, cfg.small
	cfg.rounds, cfg.slowRounds, cfg.termRounds, cfg.largestRounds = 3, 3, 3, 3
	cfg.network = false
	cfg.etcd = etcdConfig{size: size{200, 4, 1}, lease: 2 * time.Second, colds: 1, steady: 3, contents: 10, events: 1}
	cfg.grpc = grpcConfig{
		size: size{200, 4, 1}, others: []int{20, 400}, lease: 2 * time.Second, interval: 100 * time.Millisecond,
		colds: 1, rounds: 3, fewer: 3, lost: 1, patience: time.Minute,
	}
	cfg.reaction.rounds, cfg.reaction.interval, cfg.reaction.patience = 2, 500*time.Millisecond, time.Minute
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
	return []planner{
		ours(), oursAtFirst(),
		franzGo(franzGoOne, 1, false),
		franzGo(franzGoMany, manyTopics, false),
		franzGo("franz-go, 100 topics, encoded", manyTopics, true),
		jumpHash(),
		saramaSticky(func(s size, e event) int {
			switch {
			case s != cfg.sarama:
				return 0
			case e.name == allOnOne.name: // takes half a minute
				return 1
			}
			return 3
		}),
	}
}

// results holds all results.
type results struct {
	cfg        config
	start, end time.Time
	revision   string
	plans      []plans // in the order of cfg.plans
	several    []plans // in the order of cfg.copies and cfg.plans
	terms      terms
	largest    largest
	hard       []hard
	growth     growth
	allocs     float64 // of a steady plan
	heap       float64 // bytes per instance
	network    network
	enlist     enlisting
	etcd       onEtcd
	grpc       overGRPC
	reactions  []reactions
}

// at returns the comparison of planners at a size.
func (r results) at(s size) plans {
	for _, p := range slices.Concat(r.plans, r.several) {
		if p.size == s {
			return p
		}
	}
	return plans{}
}

func measure(ctx context.Context, cfg config) (results, error) {
	r := results{cfg: cfg, start: time.Now(), revision: revision(ctx)}
	var err error
	if cfg.network {
		cfg.log("a term over a slow network")
		if r.network, err = measureNetwork(ctx); err != nil {
			return r, err
		}
	}
	if r.etcd, err = measureEtcd(ctx, cfg); err != nil {
		return r, err
	}
	if r.grpc, err = measureGRPC(ctx, cfg); err != nil {
		return r, err
	}
	if r.reactions, err = measureReactions(ctx, cfg); err != nil {
		return r, err
	}
	if r.enlist, err = measureEnlist(ctx, cfg); err != nil {
		return r, err
	}
	if r.terms, err = measureTerms(ctx, cfg, cfg.big, cfg.small, cfg.old); err != nil {
		return r, err
	}
	if r.largest, err = measureLargest(ctx, cfg); err != nil {
		return r, err
	}
	cfg.log("allocations and heap of %s", cfg.big)
	if r.heap, err = heapPerInstance(ctx, cfg.big); err != nil {
		return r, err
	}
	if r.allocs, err = planAllocations(cfg.big); err != nil {
		return r, err
	}
	if r.hard, err = measureHard(cfg, cfg.big); err != nil {
		return r, err
	}
	if r.growth, err = measureGrowth(cfg, cfg.small, cfg.big); err != nil {
		return r, err
	}
	for _, copies := range cfg.copies {
		for _, s := range cfg.plans {
			p, err := comparePlanners(ctx, cfg, s.of(copies))
			if err != nil {
				return r, err
			}
			r.several = append(r.several, p)
		}
	}
	for _, s := range cfg.plans {
		p, err := comparePlanners(ctx, cfg, s)
		if err != nil {
			return r, err
		}
		r.plans = append(r.plans, p)
	}
	r.end = time.Now()
	cfg.log("done")
	return r, nil
}
