//go:build peers

package main

// The library over gRPC: a cold start, a lost worker, and steady terms with growing
// numbers of tasks, beside the same number of bare calls.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
)

// grpcConfig selects what is measured over gRPC, and how often.
type grpcConfig struct {
	size           // of cold starts and lost workers
	others   []int // other numbers of tasks, for steady terms
	lease    time.Duration
	interval time.Duration // from term to term
	colds    int           // cold starts
	rounds   int           // of steady terms at size
	fewer    int           // and of steady terms with other numbers of tasks
	lost     int           // number of workers lost
	timeout  time.Duration // time limit for one event
}

// contentBytes is the length of each task's content in bytes.
const contentBytes = 100

// slots is the number of tasks that a worker runs at the same time, about an eighth
// of its tasks in the largest fleet. The others wait in its queue.
const slots = 128

// grpcResults holds the results.
type grpcResults struct {
	size
	cold, lost []grpcCost
	steady     []steadyTerms // at size, then at the others
}

// grpcCost is the cost of one event.
type grpcCost struct {
	before            time.Duration // until a term knew of the event
	took              time.Duration // from then until everything ran
	term              time.Duration // the longest term in that time
	terms             int
	starts            int
	calls, membership bytesSent
	allocs            int // in the whole process
}

// steadyTerms are terms without changes, at one number of tasks.
type steadyTerms struct {
	tasks, workers int
	took, listing  samples
	floor          samples // the same number of bare calls
	cpu, floorCPU  samples // CPU time of the process
	bytes          []bytesSent
	allocs         []int // in the whole process
	allocated      []int // bytes
	floorAllocs    []int
	meanwhile      []bytesSent // heartbeats while cpu and allocs were counted
	heartbeats     bytesSent   // heartbeats during heard
	heard          time.Duration
	goroutines     int
}

func measureGRPC(ctx context.Context, cfg config) (r grpcResults, err error) {
	r = grpcResults{size: cfg.grpc.size}
	if err := enoughDescriptors(cfg.grpc.workers); err != nil {
		return r, fmt.Errorf("over gRPC: %w", err)
	}
	for i := range cfg.grpc.colds {
		if err := r.measureOnce(ctx, cfg, i == cfg.grpc.colds-1); err != nil {
			return r, fmt.Errorf("over gRPC: %w", err)
		}
	}
	return r, nil
}

// measureOnce measures a cold start and, if more is true, the other events.
func (r *grpcResults) measureOnce(ctx context.Context, cfg config, more bool) (err error) {
	c := cfg.grpc
	cfg.log("a cold start of %s over gRPC", c.size)
	f, err := startGRPCFleet(ctx, c.interval, c.lease)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	p := grpcDriver{grpcFleet: f, cfg: c}
	cold, err := p.coldStart()
	if err != nil {
		return fmt.Errorf("cold start: %w", err)
	}
	r.cold = append(r.cold, cold)
	if !more {
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
			return fmt.Errorf("lose a worker: %w", err)
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

// grpcDriver causes events in a fleet, one after another.
type grpcDriver struct {
	*grpcFleet
	cfg     grpcConfig
	members int
	tasks   int
}

// within bounds the time of one event.
func (p *grpcDriver) within() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(p.ctx, p.cfg.timeout, fmt.Errorf("not done after %v", p.cfg.timeout))
}

// counts holds the counters at one moment.
type counts struct {
	terms             int
	calls, membership bytesSent
	mallocs, memory   uint64
	cpu               time.Duration
}

// cpuTime returns the CPU time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (p *grpcDriver) count() counts {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return counts{p.terms.len(), p.calls.read(), p.membership.read(), m.Mallocs, m.TotalAlloc, cpuTime()}
}

// cost returns the cost of an event since then was counted. The clock began at
// since. known is the start of the first term that knew of the event.
func (p *grpcDriver) cost(then counts, since, known time.Time) grpcCost {
	t := grpcCost{before: known.Sub(since), took: time.Since(known)}
	now := p.count()
	t.calls, t.membership = now.calls.less(then.calls), now.membership.less(then.membership)
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

// coldStart makes all members join at the same time. When a term has heard them all,
// it gives the manager all tasks.
func (p *grpcDriver) coldStart() (grpcCost, error) {
	runtime.GC()
	then, start := p.count(), time.Now()
	for i := range p.cfg.workers {
		if err := p.startMember(slots, i >= p.cfg.workers-p.cfg.lost); err != nil {
			return grpcCost{}, err
		}
	}
	p.members = p.cfg.workers
	heard, err := p.heard(then.terms)
	if err != nil {
		return grpcCost{}, err
	}
	known := heard.Start.Add(heard.Total)
	if err := p.resize(p.cfg.instances); err != nil {
		return grpcCost{}, err
	}
	return p.cost(then, start, known), nil
}

// heard waits for a term that has heard exactly the present members.
func (p *grpcDriver) heard(after int) (orchestrator.TermStats, error) {
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

// loss cuts off one member. Its tasks start elsewhere only after its lease has
// ended.
func (p *grpcDriver) loss() (grpcCost, error) {
	then, start := p.count(), time.Now()
	if err := p.lose(); err != nil {
		return grpcCost{}, err
	}
	p.members--
	first, err := p.heard(then.terms)
	if err != nil {
		return grpcCost{}, err
	}
	if err := p.settled(then.terms); err != nil {
		return grpcCost{}, err
	}
	return p.cost(then, start, first.Start), nil
}

// resize adds or deletes tasks, and returns when the rest runs.
func (p *grpcDriver) resize(tasks int) error {
	after := p.terms.len()
	if err := p.expect(p.tasks, tasks); err != nil {
		return err
	}
	p.tasks = tasks
	return p.settled(after)
}

// settled waits until everything runs at the end of a term.
func (p *grpcDriver) settled(after int) error {
	ctx, cancel := p.within()
	defer cancel()
	_, err := p.terms.wait(ctx, after, func(s orchestrator.TermStats) bool {
		return s.Instances.Wanted == p.tasks && s.Instances.Running == p.tasks && s.Spread <= 1
	})
	if err != nil {
		return fmt.Errorf("%d tasks: %w", p.tasks, err)
	}
	_, err = p.taskLog.wait(ctx, min(p.tasks, p.members*slots))
	return err
}

// steady measures terms without changes and, in the pause after each, the floor.
func (p *grpcDriver) steady(floor *bareCalls, rounds int) (steadyTerms, error) {
	s := steadyTerms{tasks: p.tasks, workers: p.members}
	ctx, cancel := context.WithTimeoutCause(p.ctx, p.cfg.timeout+4*time.Duration(rounds)*p.cfg.interval,
		errors.New("the terms take too long"))
	defer cancel()
	if _, _, err := p.nextTerm(ctx); err != nil { // lists the tasks that started since the last term
		return s, err
	}
	began, beats := time.Now(), p.membership.read()
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
			return s, fmt.Errorf("term %d was not steady: %w", term.Term.Number, term.Err)
		}
		s.took, s.listing, s.floor = append(s.took, term.Total), append(s.listing, term.Listing), append(s.floor, took)
		s.cpu, s.floorCPU = append(s.cpu, after.cpu-before.cpu), append(s.floorCPU, bare.cpu-after.cpu)
		s.bytes = append(s.bytes, after.calls.less(before.calls))
		s.meanwhile = append(s.meanwhile, after.membership.less(before.membership))
		s.allocs = append(s.allocs, int(after.mallocs-before.mallocs))
		s.allocated = append(s.allocated, int(after.memory-before.memory))
		s.floorAllocs = append(s.floorAllocs, int(bare.mallocs-after.mallocs))
	}
	s.heartbeats, s.heard = p.membership.read().less(beats), time.Since(began)
	s.goroutines = runtime.NumGoroutine()
	return s, nil
}

// nextTerm waits for the first term that begins from now on to end, and returns it
// with the counters before it.
func (p *grpcDriver) nextTerm(ctx context.Context) (before counts, term orchestrator.TermStats, err error) {
	for {
		before = p.count()
		now := time.Now()
		term, err = p.terms.wait(ctx, before.terms, func(orchestrator.TermStats) bool { return true })
		if err != nil || !term.Start.Before(now) {
			return before, term, err
		}
	}
}

// The goals over gRPC.
const (
	grpcSteadyGoal  = 150 * time.Millisecond
	grpcPayloadGoal = 100 // bytes per worker and term, both directions
	grpcGrowthGoal  = 1.1 // ratio of payloads at a hundred times the tasks, because numbers grow longer
)

// payload returns the bytes of messages to and from each worker in a term.
func (s steadyTerms) payload() float64 {
	return s.each(func(i int) float64 { return float64(s.bytes[i].payload) / float64(s.workers) })
}

// each returns the median of a figure of each term.
func (s steadyTerms) each(figure func(term int) float64) float64 {
	figures := make([]float64, len(s.took))
	for i := range figures {
		figures[i] = figure(i)
	}
	return middle(figures)
}

func (r grpcResults) goals() []goal {
	at, least, most := r.steady[0], r.steady[0], r.steady[0]
	for _, s := range r.steady {
		if s.tasks < least.tasks {
			least = s
		}
		if s.tasks > most.tasks {
			most = s
		}
	}
	of := "over gRPC, " + r.String() + ": "
	return []goal{
		{What: of + "a steady term", Measured: ms(at.took.median()), Op: "<", Limit: ms(grpcSteadyGoal), Unit: "ms"},
		{
			What: of + "payload of a steady term for each worker, both directions", Op: "<", Limit: grpcPayloadGoal,
			Measured: number(at.payload()), Unit: "bytes",
		},
		atMost(fmt.Sprintf("over gRPC: that payload with %s tasks, compared with %s", thousands(most.tasks), thousands(least.tasks)),
			"× the bytes", grpcGrowthGoal, figure{value: most.payload() / least.payload()}),
	}
}

func (r grpcResults) tables() []table { return []table{r.events(), r.terms()} }

func (r grpcResults) events() table {
	t := table{Title: r.String(), Columns: []string{"cold start", "one lost"}}
	duration := func(name string, f func(grpcCost) time.Duration) {
		t.add(name, ms(medianOf(r.cold, f)), ms(medianOf(r.lost, f)))
	}
	counted := func(name string, f func(grpcCost) int) {
		t.add(name, count(medianOf(r.cold, f)), count(medianOf(r.lost, f)))
	}
	duration("ms until known", func(e grpcCost) time.Duration { return e.before })
	duration("ms until all runs", func(e grpcCost) time.Duration { return e.took })
	duration("ms of the longest term in that time", func(e grpcCost) time.Duration { return e.term })
	counted("terms in that time", func(e grpcCost) int { return e.terms })
	counted("starts", func(e grpcCost) int { return e.starts })
	counted("calls: messages", func(e grpcCost) int { return e.calls.messages })
	counted("calls: bytes of payload", func(e grpcCost) int { return e.calls.payload })
	counted("calls: bytes on the wire", func(e grpcCost) int { return e.calls.wire })
	counted("registrations and heartbeats: messages", func(e grpcCost) int { return e.membership.messages })
	counted("registrations and heartbeats: bytes of payload", func(e grpcCost) int { return e.membership.payload })
	counted("registrations and heartbeats: bytes on the wire", func(e grpcCost) int { return e.membership.wire })
	counted("allocations, whole process", func(e grpcCost) int { return e.allocs })
	return t
}

func (r grpcResults) terms() table {
	t := table{Title: "a steady term"}
	for _, s := range r.steady {
		t.Columns = append(t.Columns, fmt.Sprintf("%s × %s", thousands(s.tasks), grouped(s.workers)))
	}
	row := func(name string, figure func(steadyTerms) number) { t.add(name, eachOf(r.steady, figure)...) }
	perWorker := func(name string, f func(s steadyTerms, term int) int) {
		row(name, func(s steadyTerms) number {
			return number(s.each(func(term int) float64 { return float64(f(s, term)) }) / float64(s.workers))
		})
	}
	row("ms", func(s steadyTerms) number { return ms(s.took.median()) })
	row("ms of that for the listing", func(s steadyTerms) number { return ms(s.listing.median()) })
	row("ms of CPU time, whole process", func(s steadyTerms) number { return ms(s.cpu.median()) })
	row("ms for the bare calls", func(s steadyTerms) number { return ms(s.floor.median()) })
	row("ms of CPU time for the bare calls", func(s steadyTerms) number { return ms(s.floorCPU.median()) })
	row("× the bare calls", func(s steadyTerms) number { return number(ratio(s.took, s.floor)) })
	perWorker("bytes of payload per worker", func(s steadyTerms, i int) int { return s.bytes[i].payload })
	perWorker("bytes on the wire per worker", func(s steadyTerms, i int) int { return s.bytes[i].wire })
	perWorker("allocations per worker, whole process", func(s steadyTerms, i int) int { return s.allocs[i] })
	perWorker("bytes allocated per worker, whole process", func(s steadyTerms, i int) int { return s.allocated[i] })
	perWorker("allocations of a bare call", func(s steadyTerms, i int) int { return s.floorAllocs[i] })
	row("heartbeats per worker while CPU time and allocations were counted", func(s steadyTerms) number {
		return number(s.each(func(i int) float64 { return float64(s.meanwhile[i].messages) / 2 / float64(s.workers) }))
	})
	row("heartbeat payload, bytes per worker and second", func(s steadyTerms) number {
		return number(float64(s.heartbeats.payload) / float64(s.workers) / s.heard.Seconds())
	})
	return t
}
