package stats

// The collector of terms: its options, its registration and the observation of terms. Its
// metrics are in terms.go.

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
	counters table[*Collector]
	gauges   table[*orchestrator.TermStats]

	mu         sync.Mutex // guards the fields below
	counts     map[series]uint64
	histograms map[series]histogram
	last       orchestrator.TermStats
	seen       bool // last is valid
}

var _ prometheus.Collector = (*Collector)(nil)

// series is a series of a counter or a histogram: its name without the prefix, and its labels.
type series struct {
	name   string
	labels [2]string
}

// Option configures the collectors of this package.
type Option func(*prometheus.Labels)

// WithConstLabels adds these labels to every metric, so that one process can have
// several orchestrators, recruiters, workers or managers. By default there are no
// such labels. Registration fails for a label name that the metrics use, or that
// Prometheus rejects. At present it rejects names that are empty, begin with __ or
// are not UTF-8.
func WithConstLabels(labels prometheus.Labels) Option {
	labels = maps.Clone(labels)
	return func(to *prometheus.Labels) { *to = labels }
}

func labelsOf(opts []Option) (labels prometheus.Labels) {
	for _, opt := range opts {
		if opt != nil {
			opt(&labels)
		}
	}
	return labels
}

// NewCollector returns a collector that has observed no term. The caller must
// register it; [Register] does both.
func NewCollector(opts ...Option) *Collector {
	c := &Collector{
		counters: newTable("orchestrator_", opts, termCounters()...), gauges: newTable("orchestrator_", opts, termGauges()...),
		counts: make(map[series]uint64), histograms: make(map[series]histogram),
	}
	// Create every series now, because rate() misses the first event of a series
	// that appears with that event.
	for _, phase := range []string{"list", "plan", "write"} {
		c.histograms[series{phases, [2]string{phase}}] = histogram{}
	}
	for op, reasons := range map[orchestrator.ChangeOp][]orchestrator.Reason{
		orchestrator.Start: {orchestrator.ReasonMissing, orchestrator.ReasonLost},
		orchestrator.Stop:  {orchestrator.ReasonUnexpected, orchestrator.ReasonSurplus},
		orchestrator.Move: {
			orchestrator.ReasonRebalance, orchestrator.ReasonDrain, orchestrator.ReasonRequires, orchestrator.ReasonZone, orchestrator.ReasonLimit,
		},
	} {
		for _, reason := range reasons {
			c.count("changes_total", 0, string(op), string(reason))
		}
	}
	for name, labels := range map[string][]any{
		"terms_total": {"ok", "failed", "cut", "deposed"}, "moves_excess_total": {""},
		"worker_state_changes_total": {orchestrator.Silent, orchestrator.Lost, orchestrator.Answering},
		"change_outcomes_total": {
			orchestrator.OutcomeDone, orchestrator.OutcomeFailed, orchestrator.OutcomeReturned, orchestrator.OutcomeUnknown,
			orchestrator.OutcomeStopping, orchestrator.OutcomeSkipped,
		},
	} {
		for _, label := range labels {
			c.count(name, 0, fmt.Sprint(label))
		}
	}
	c.addCalls(&orchestrator.TermStats{})
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

	c.count("terms_total", 1, result(&term))
	c.addPhase("list", term.Listing)
	c.addPhase("plan", term.Planning)
	c.addPhase("write", term.Writing)
	for kind, n := range term.Changes {
		c.count("changes_total", n, string(kind.Op), string(kind.Reason))
	}
	for outcome, n := range term.Outcomes {
		c.count("change_outcomes_total", n, string(outcome))
	}
	for to, n := range term.StateChanges {
		c.count("worker_state_changes_total", n, to.String())
	}
	c.count("moves_excess_total", max(0, term.Adds-term.LowerBound))
	c.addCalls(&term)

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

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	c.counters.Describe(ch)
	c.gauges.Describe(ch)
}

// Collect implements [prometheus.Collector]. All values of one scrape include the
// same terms.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.values() {
		ch <- m
	}
}

func (c *Collector) values() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.counters.values(c)
	if c.seen && !c.last.RunEnded() {
		all = append(all, c.gauges.values(&c.last)...)
	}
	return all
}

// count adds to a counter.
func (c *Collector) count(name string, n int, labels ...string) {
	s := series{name: name}
	copy(s.labels[:], labels)
	c.counts[s] += uint64(n)
}

// addPhase records the duration of a phase, or nothing if the term did not reach it.
func (c *Collector) addPhase(phase string, took time.Duration) {
	if took > 0 {
		s := series{phases, [2]string{phase}}
		h := c.histograms[s]
		h.observe(took)
		c.histograms[s] = h
	}
}

// addCalls records the calls of a term.
func (c *Collector) addCalls(term *orchestrator.TermStats) {
	for op, s := range map[orchestrator.Op]*orchestrator.CallStats{
		orchestrator.OpList: &term.List, orchestrator.OpAdd: &term.Add, orchestrator.OpRemove: &term.Remove, orchestrator.OpApply: &term.Apply,
	} {
		for result, n := range map[string]int{
			"done": s.Done, "rejected": s.Rejected, "stopping": s.Stopping, "deposed": s.Deposed, "timeout": s.Timeout, "failed": s.Failed,
		} {
			c.count("calls_total", n, op.String(), result)
		}
		is := series{"call_duration_seconds", [2]string{op.String()}}
		h := c.histograms[is]
		h.add(&s.Seconds)
		c.histograms[is] = h
	}
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
func (h *histogram) metric(desc *prometheus.Desc, label string) prometheus.Metric {
	cumulative := make(map[float64]uint64, len(h.buckets))
	var n uint64
	for i, bound := range orchestrator.DurationBounds() {
		n += h.buckets[i]
		cumulative[bound.Seconds()] = n
	}
	return prometheus.MustNewConstHistogram(desc, h.count, h.sum, cumulative, label)
}
