package main

// The library over gRPC: a cold start, a worker that is lost, and steady terms of
// fleets with more and more tasks, beside as many bare calls.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
)

// grpcConfig is what is measured over gRPC, and how often.
type grpcConfig struct {
	size           // of cold starts, and of workers that are lost
	others   []int // other numbers of tasks, for steady terms
	lease    time.Duration
	interval time.Duration // from term to term
	colds    int           // cold starts
	rounds   int           // of steady terms at size
	fewer    int           // and of those with other numbers of tasks
	lost     int           // workers that are lost
	patience time.Duration // for any one thing to happen
}

// contentBytes is how many bytes each task's content has.
const contentBytes = 100

// slots is how many tasks a worker runs at a time: a tenth of what it has in the
// largest fleet. The others wait in its list.
const slots = 128

// overGRPC is what was measured.
type overGRPC struct {
	size
	revision   string
	start, end time.Time
	cold, lost []transition
	steady     []steadyTerms // by size, then by others
}

// transition is one thing that happened, and what it took.
type transition struct {
	before       time.Duration // until a term knew of it
	took         time.Duration // from then on, until everything ran
	term         time.Duration // the longest term of those
	terms        int
	starts       int
	calls, books bytesSent
	allocs       int // of everybody
}

// steadyTerms are terms in which nothing happens, at one number of tasks.
type steadyTerms struct {
	tasks, workers int
	took, listing  samples
	floor          samples // as many bare calls
	cpu, floorCPU  samples // the processor's time, everybody's
	bytes          []bytesSent
	allocs         []int // of everybody
	allocated      []int // bytes of that
	floorAllocs    []int
	meanwhile      []bytesSent // heartbeats, while that was counted
	heartbeats     bytesSent   // in heard
	heard          time.Duration
	goroutines     int
}

func measureGRPC(ctx context.Context, cfg config) (r overGRPC, err error) {
	r = overGRPC{size: cfg.grpc.size, revision: revision(ctx), start: time.Now()}
	if err := enoughDescriptors(cfg.grpc.workers); err != nil {
		return r, fmt.Errorf("over gRPC: %w", err)
	}
	for i := range cfg.grpc.colds {
		if err := r.play(ctx, cfg, i == cfg.grpc.colds-1); err != nil {
			return r, fmt.Errorf("over gRPC: %w", err)
		}
	}
	r.end = time.Now()
	return r, nil
}

// play is a cold start and, if it goes on, what comes after.
func (r *overGRPC) play(ctx context.Context, cfg config, goesOn bool) (err error) {
	c := cfg.grpc
	cfg.log("a cold start of %s over gRPC", c.size)
	f, err := startFleet(ctx, c.interval, c.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	p := producer{fleetOverGRPC: f, cfg: c}
	cold, err := p.coldStart()
	if err != nil {
		return fmt.Errorf("cold start: %w", err)
	}
	r.cold = append(r.cold, cold)
	if !goesOn {
		return nil
	}
	floor, err := newBareCalls(p.ctx, c.workers)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, floor.close()) }()
	measure := func(tasks, rounds int) error {
		cfg.log("steady terms of %s tasks over gRPC", grouped(tasks))
		if err := p.resize(tasks); err != nil {
			return fmt.Errorf("%d tasks: %w", tasks, err)
		}
		s, err := p.steady(floor, rounds)
		r.steady = append(r.steady, s)
		return err
	}
	if err := measure(c.instances, c.rounds); err != nil {
		return err
	}
	for range c.lost {
		cfg.log("a worker is lost, over gRPC")
		lost, err := p.loss()
		if err != nil {
			return fmt.Errorf("one is lost: %w", err)
		}
		r.lost = append(r.lost, lost)
	}
	for _, tasks := range c.others {
		if err := measure(tasks, c.fewer); err != nil {
			return err
		}
	}
	return nil
}

// producer has things happen to a fleet, one after the other.
type producer struct {
	*fleetOverGRPC
	cfg     grpcConfig
	members int
	tasks   int
}

// within bounds how long one thing may take.
func (p *producer) within() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(p.ctx, p.cfg.patience, fmt.Errorf("not done after %v", p.cfg.patience))
}

// counts is what was counted at one moment.
type counts struct {
	terms           int
	calls, books    bytesSent
	mallocs, memory uint64
	cpu             time.Duration
}

// cpuTime is what this process has had of the processors.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (p *producer) count() counts {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return counts{p.terms.len(), p.calls.read(), p.books.read(), m.Mallocs, m.TotalAlloc, cpuTime()}
}

// transition returns what has happened since then; known is the start of the
// first term that knew what there was to do, and since that of the clock.
func (p *producer) transition(then counts, since, known time.Time) transition {
	t := transition{before: known.Sub(since), took: time.Since(known)}
	now := p.count()
	t.calls, t.books = now.calls.less(then.calls), now.books.less(then.books)
	t.allocs = int(now.mallocs - then.mallocs)
	for _, s := range p.terms.since(then.terms) {
		if s.Start.Before(known) {
			continue
		}
		t.terms++
		t.term = max(t.term, s.Total)
		t.starts += s.Adds
	}
	return t
}

// coldStart has everybody come at once, and when a term has heard all of them,
// gives the manager all that there is to do.
func (p *producer) coldStart() (transition, error) {
	runtime.GC()
	then, start := p.count(), time.Now()
	for i := range p.cfg.workers {
		if err := p.hire(slots, i >= p.cfg.workers-p.cfg.lost); err != nil {
			return transition{}, err
		}
	}
	p.members = p.cfg.workers
	heard, err := p.heard(then.terms)
	if err != nil {
		return transition{}, err
	}
	known := heard.Start.Add(heard.Total)
	if err := p.resize(p.cfg.instances); err != nil {
		return transition{}, err
	}
	return p.transition(then, start, known), nil
}

// heard waits for a term that has heard all members, and nobody else.
func (p *producer) heard(after int) (orchestrator.TermStats, error) {
	ctx, cancel := p.within()
	defer cancel()
	s, err := p.terms.wait(ctx, after, func(s orchestrator.TermStats) bool {
		return s.Workers.Answering == p.members && s.Workers.Silent+s.Workers.Lost == 0
	})
	if err != nil {
		return s, fmt.Errorf("%d members: %w", p.members, err)
	}
	return s, nil
}

// loss has one member be lost. Nothing is started elsewhere before its lease has
// ended.
func (p *producer) loss() (transition, error) {
	then, start := p.count(), time.Now()
	if err := p.lose(); err != nil {
		return transition{}, err
	}
	p.members--
	first, err := p.heard(then.terms)
	if err != nil {
		return transition{}, err
	}
	if err := p.settled(then.terms); err != nil {
		return transition{}, err
	}
	return p.transition(then, start, first.Start), nil
}

// resize gives the manager more tasks, or fewer, and returns when they run.
func (p *producer) resize(tasks int) error {
	after := p.terms.len()
	if err := p.expect(p.tasks, tasks); err != nil {
		return err
	}
	p.tasks = tasks
	return p.settled(after)
}

// settled waits until everything runs, and a term has left it so.
func (p *producer) settled(after int) error {
	ctx, cancel := p.within()
	defer cancel()
	_, err := p.terms.wait(ctx, after, func(s orchestrator.TermStats) bool {
		return s.Instances.Wanted == p.tasks && s.Instances.Running == p.tasks && s.Spread <= 1
	})
	if err != nil {
		return fmt.Errorf("%d tasks: %w", p.tasks, err)
	}
	return p.ledger.wait(ctx, min(p.tasks, p.members*slots), 0)
}

// steady measures terms in which nothing happens, and in the pauses between them,
// right after each, the floor.
func (p *producer) steady(floor *bareCalls, rounds int) (steadyTerms, error) {
	s := steadyTerms{tasks: p.tasks, workers: p.members}
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.cfg.patience+4*time.Duration(rounds)*p.cfg.interval,
		errors.New("terms take too long to be measured"))
	defer cancel()
	if _, _, err := p.nextTerm(ctx); err != nil { // it hears what has come to run since the last
		return s, err
	}
	began, beats := time.Now(), p.books.read()
	for len(s.took) < rounds {
		runtime.GC()
		before, term, err := p.nextTerm(ctx)
		if err != nil {
			return s, err
		}
		after := p.count()
		start := time.Now()
		if err := floor.run(ctx); err != nil {
			return s, err
		}
		took := time.Since(start)
		bare := p.count()
		if term.Err != nil || term.Adds > 0 || term.Workers.Answering != p.members {
			return s, fmt.Errorf("term %d was not a steady one: %w", term.Term.Number, term.Err)
		}
		s.took, s.listing, s.floor = append(s.took, term.Total), append(s.listing, term.Listing), append(s.floor, took)
		s.cpu, s.floorCPU = append(s.cpu, after.cpu-before.cpu), append(s.floorCPU, bare.cpu-after.cpu)
		s.bytes = append(s.bytes, after.calls.less(before.calls))
		s.meanwhile = append(s.meanwhile, after.books.less(before.books))
		s.allocs = append(s.allocs, int(after.mallocs-before.mallocs))
		s.allocated = append(s.allocated, int(after.memory-before.memory))
		s.floorAllocs = append(s.floorAllocs, int(bare.mallocs-after.mallocs))
	}
	s.heartbeats, s.heard = p.books.read().less(beats), time.Since(began)
	s.goroutines = runtime.NumGoroutine()
	return s, nil
}

// nextTerm returns the first term that begins from now on, when it has ended, and
// what was counted before it.
func (p *producer) nextTerm(ctx context.Context) (before counts, term orchestrator.TermStats, err error) {
	for {
		before = p.count()
		now := time.Now()
		term, err = p.terms.wait(ctx, before.terms, func(orchestrator.TermStats) bool { return true })
		if err != nil || !term.Start.Before(now) {
			return before, term, err
		}
	}
}
