package stats

// The state of the collector: its options, its registration and the observation of
// terms. The metrics are in collect.go.

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator"
)

// Collector accumulates the statistics of terms for Prometheus. Create one with
// [NewCollector] or [Register]. Its methods may be called from any goroutine.
type Collector struct {
	descs descs

	mu        sync.Mutex // guards the fields below
	terms     map[string]uint64
	phases    map[string]histogram
	changes   map[orchestrator.ChangeKind]uint64
	outcomes  map[orchestrator.Outcome]uint64
	calls     map[call]uint64
	durations map[orchestrator.Op]histogram
	excess    uint64
	states    map[orchestrator.State]uint64 // changes of workers' states
	last      orchestrator.TermStats
	seen      bool // last is valid
}

var _ prometheus.Collector = (*Collector)(nil)

// call identifies a series of orchestrator_calls_total.
type call struct {
	op     orchestrator.Op
	result string
}

// Option configures the collectors of this package.
type Option interface{ apply(*options) }

type options struct{ constLabels prometheus.Labels }

type optionFunc func(*options)

func (f optionFunc) apply(o *options) { f(o) }

// WithConstLabels adds these labels to every metric, so that one process can have
// several orchestrators, recruiters, workers or managers. By default there are no
// such labels. Registration fails for a label name that the metrics use, or that
// Prometheus rejects. At present it rejects names that are empty, begin with __ or
// are not UTF-8.
func WithConstLabels(labels prometheus.Labels) Option {
	labels = maps.Clone(labels)
	return optionFunc(func(o *options) { o.constLabels = labels })
}

func optionsOf(opts []Option) options {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt.apply(&o)
		}
	}
	return o
}

// NewCollector returns a collector that has observed no term. The caller must
// register it; [Register] does both.
func NewCollector(opts ...Option) *Collector {
	o := optionsOf(opts)
	c := &Collector{
		descs:     newDescs(o.constLabels),
		terms:     map[string]uint64{"ok": 0, "failed": 0, "cut": 0, "deposed": 0},
		phases:    map[string]histogram{"list": {}, "plan": {}, "write": {}},
		changes:   make(map[orchestrator.ChangeKind]uint64),
		outcomes:  make(map[orchestrator.Outcome]uint64),
		calls:     make(map[call]uint64),
		durations: make(map[orchestrator.Op]histogram),
		states:    map[orchestrator.State]uint64{orchestrator.Silent: 0, orchestrator.Lost: 0, orchestrator.Answering: 0},
	}
	// Create every series now, because rate() misses the first event of a series
	// that appears with that event.
	for _, kind := range []orchestrator.ChangeKind{
		{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing},
		{Op: orchestrator.Start, Reason: orchestrator.ReasonLost},
		{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected},
		{Op: orchestrator.Stop, Reason: orchestrator.ReasonSurplus},
		{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance},
		{Op: orchestrator.Move, Reason: orchestrator.ReasonDrain},
		{Op: orchestrator.Move, Reason: orchestrator.ReasonRequires},
		{Op: orchestrator.Move, Reason: orchestrator.ReasonZone},
		{Op: orchestrator.Move, Reason: orchestrator.ReasonLimit},
	} {
		c.changes[kind] = 0
	}
	for _, outcome := range []orchestrator.Outcome{
		orchestrator.OutcomeDone, orchestrator.OutcomeFailed, orchestrator.OutcomeReturned,
		orchestrator.OutcomeUnknown, orchestrator.OutcomeStopping, orchestrator.OutcomeSkipped,
	} {
		c.outcomes[outcome] = 0
	}
	for _, op := range []orchestrator.Op{orchestrator.OpList, orchestrator.OpAdd, orchestrator.OpRemove, orchestrator.OpApply} {
		c.addCalls(op, &orchestrator.CallStats{})
	}
	return c
}

// Register creates a collector and registers it with reg. If an equal collector is
// already registered, Register returns that one, and its counts continue.
func Register(reg prometheus.Registerer, opts ...Option) (*Collector, error) {
	c := NewCollector(opts...)
	err := reg.Register(c)
	if err == nil {
		return c, nil
	}
	if already, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := already.ExistingCollector.(*Collector); ok {
			return existing, nil
		}
	}
	return nil, fmt.Errorf("stats: register: %w", err)
}

// Observe records a term. Pass it to [orchestrator.WithStats]. It does not wait
// until a scrape has been sent. If the term ended with [orchestrator.ErrDeposed], there are no
// gauges until the next one.
func (c *Collector) Observe(term orchestrator.TermStats) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.terms[result(&term)]++
	c.addPhase("list", term.Listing)
	c.addPhase("plan", term.Planning)
	c.addPhase("write", term.Writing)
	for kind, n := range term.Changes {
		c.changes[kind] += uint64(n)
	}
	for outcome, n := range term.Outcomes {
		c.outcomes[outcome] += uint64(n)
	}
	for to, n := range term.StateChanges {
		c.states[to] += uint64(n)
	}
	c.excess += uint64(max(0, term.Adds-term.LowerBound))
	c.addCalls(orchestrator.OpList, &term.List)
	c.addCalls(orchestrator.OpAdd, &term.Add)
	c.addCalls(orchestrator.OpRemove, &term.Remove)
	c.addCalls(orchestrator.OpApply, &term.Apply)

	c.last, c.seen = term, result(&term) != "deposed"
	c.last.Changes, c.last.Outcomes, c.last.StateChanges, c.last.Err = nil, nil, nil, nil // counted above; do not retain them
}

// Forget removes the gauges of the last term until the next term. Call it when leadership ends in a
// program that calls NextTerm. If [orchestrator.Orchestrator.Run] ran the term, the gauges end
// when Run returns. The counters stay.
func (c *Collector) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = false
}

// addPhase records the duration of a phase, or nothing if the term did not reach it.
func (c *Collector) addPhase(phase string, took time.Duration) {
	if took > 0 {
		h := c.phases[phase]
		h.observe(took)
		c.phases[phase] = h
	}
}

func (c *Collector) addCalls(op orchestrator.Op, s *orchestrator.CallStats) {
	c.calls[call{op, "done"}] += uint64(s.Done)
	c.calls[call{op, "rejected"}] += uint64(s.Rejected)
	c.calls[call{op, "stopping"}] += uint64(s.Stopping)
	c.calls[call{op, "deposed"}] += uint64(s.Deposed)
	c.calls[call{op, "timeout"}] += uint64(s.Timeout)
	c.calls[call{op, "failed"}] += uint64(s.Failed)

	h := c.durations[op]
	h.add(&s.Seconds)
	c.durations[op] = h
}

func result(term *orchestrator.TermStats) string {
	switch {
	case term.Err == nil:
		return "ok"
	case errors.Is(term.Err, orchestrator.ErrDeposed):
		return "deposed"
	case term.Cut:
		return "cut"
	}
	return "failed"
}

// histogram is orchestrator.Durations over the life of a process. Its buckets are those
// of orchestrator.DurationBounds. Its sum is in seconds as a float, because concurrent
// calls together can exceed a time.Duration.
type histogram struct {
	count   uint64
	sum     float64
	buckets [len(orchestrator.Durations{}.Buckets)]uint64 // not cumulative
}

func (h *histogram) observe(took time.Duration) {
	h.count++
	h.sum += took.Seconds()
	for i, bound := range orchestrator.DurationBounds() {
		if took <= bound {
			h.buckets[i]++
			return
		}
	}
}

func (h *histogram) add(d *orchestrator.Durations) {
	h.count += d.Count
	h.sum += d.Sum.Seconds()
	for i, n := range d.Buckets {
		h.buckets[i] += n
	}
}

// metric returns the histogram for Prometheus, with cumulative buckets.
func (h histogram) metric(desc *prometheus.Desc, label string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(h.buckets))
	var n uint64
	for i, bound := range orchestrator.DurationBounds() {
		n += h.buckets[i]
		cumulative[bound.Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, h.count, h.sum, cumulative, label)
}
