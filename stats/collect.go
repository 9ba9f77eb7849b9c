package stats

// The metrics of the collector: names, labels, help texts and values.

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/f8949c05/orchestrator"
)

type descs struct {
	all []*prometheus.Desc

	terms, phases, changes, outcomes, excess, states               *prometheus.Desc
	calls, durations                                               *prometheus.Desc
	workers, draining, late, quarantined, stuck, instances, spread *prometheus.Desc
	highestLoad, outOfBand                                         *prometheus.Desc
	deferred, movesHeld, evictionsHeld, massLoss                   *prometheus.Desc
	lastEnd, lastTook, epoch, number                               *prometheus.Desc
}

func newDescs(constLabels prometheus.Labels) descs {
	var d descs
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		desc := prometheus.NewDesc("orchestrator_"+name, help, labels, constLabels)
		d.all = append(d.all, desc)
		return desc
	}
	d.terms = desc("terms_total", "Terms that ended, by result.", "result")
	d.phases = desc("term_duration_seconds", "How long the phases of a term took.", "phase")
	d.changes = desc("changes_total", "Starts, stops and moves of instances that terms planned, by reason.", "op", "reason")
	d.outcomes = desc("change_outcomes_total", "Outcomes of the changes that terms planned.", "outcome")
	d.excess = desc("moves_excess_total", "Starts that terms planned beyond the fewest possible, those in moves included.")
	d.states = desc("worker_state_changes_total", "How often workers fell silent, were declared lost, or answered again.", "to")
	d.calls = desc("calls_total", "Calls to workers, by result; a write in an apply counts as its own op.", "op", "result")
	d.durations = desc("call_duration_seconds", "How long calls to workers took.", "op")

	d.workers = desc("workers", "Workers in the last term, by state.", "state")
	d.draining = desc("draining_workers", "Workers that are draining, whatever their state.")
	d.late = desc("late_workers", "Workers that are not silent, but had not answered when the listing phase ended.")
	d.quarantined = desc("quarantined_workers", "Workers that get no tasks because they failed to start some that others started.")
	d.stuck = desc("stuck_calls", "Calls to workers that outlived their deadline and have not returned.")
	d.instances = desc("instances", "Instances of tasks in the last term, by state; the states overlap.", "state")
	d.spread = desc("load_spread", "Difference between the most and the fewest tasks on workers that can get tasks, after the last term.")
	d.highestLoad = desc("highest_load_ratio", "Highest weight of a worker's tasks by its level; 0 unless weights differ.")
	d.outOfBand = desc("out_of_band_workers", "Workers whose weight is farther from their level than the band.")
	d.deferred = desc("deferred_moves", "Moves that the last term left to later terms.")
	d.movesHeld = desc("held_moves", "Moves for an even spread that wait, such as for a silent worker.")
	d.evictionsHeld = desc("held_evictions", "Instances that stay where labels forbid it, because changed labels would evict too many at once.")
	d.massLoss = desc("mass_loss", "Whether no silent worker is declared lost because too many are silent.")
	d.lastEnd = desc("last_term_timestamp_seconds", "When the last term ended, in seconds since the Unix epoch.")
	d.lastTook = desc("last_term_duration_seconds", "Duration of the whole last term.")
	d.epoch = desc("term_epoch", "Epoch of the last term: which leader ran it.")
	d.number = desc("term_number", "Number of the last term within its epoch.")
	return d
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs.all {
		ch <- d
	}
}

// Collect implements [prometheus.Collector]. All values of one scrape include the
// same terms.
func (c *Collector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.metrics() {
		ch <- m
	}
}

func (c *Collector) metrics() []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()

	d := &c.descs
	var out []prometheus.Metric
	counter := func(desc *prometheus.Desc, n uint64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n), labels...))
	}
	for result, n := range c.terms {
		counter(d.terms, n, result)
	}
	for kind, n := range c.changes {
		counter(d.changes, n, string(kind.Op), string(kind.Reason))
	}
	for outcome, n := range c.outcomes {
		counter(d.outcomes, n, string(outcome))
	}
	for call, n := range c.calls {
		counter(d.calls, n, call.op.String(), call.result)
	}
	counter(d.excess, c.excess)
	for to, n := range c.states {
		counter(d.states, n, to.String())
	}
	for phase, h := range c.phases {
		out = append(out, h.metric(d.phases, phase))
	}
	for op, h := range c.durations {
		out = append(out, h.metric(d.durations, op.String()))
	}
	if c.seen && !c.last.RunEnded() {
		out = append(out, d.gauges(&c.last)...)
	}
	return out
}

func (d *descs) gauges(term *orchestrator.TermStats) []prometheus.Metric {
	var out []prometheus.Metric
	gauge := func(desc *prometheus.Desc, v float64, labels ...string) {
		out = append(out, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, v, labels...))
	}
	w := &term.Workers
	gauge(d.workers, float64(w.Answering), "answering")
	gauge(d.workers, float64(w.Silent), "silent")
	gauge(d.workers, float64(w.Lost), "lost")
	gauge(d.draining, float64(w.Draining))
	gauge(d.late, float64(w.Late))
	gauge(d.quarantined, float64(w.Quarantined))
	gauge(d.stuck, float64(w.Stuck))

	i := &term.Instances
	gauge(d.instances, float64(i.Wanted), "wanted")
	gauge(d.instances, float64(i.Running), "running")
	gauge(d.instances, float64(i.Held), "held")
	gauge(d.instances, float64(i.Missing), "missing")
	gauge(d.instances, float64(i.Unplaceable), "unplaceable")
	gauge(d.instances, float64(i.Unexpected), "unexpected")
	gauge(d.instances, float64(i.Duplicate), "duplicate")

	gauge(d.spread, float64(term.Spread))
	gauge(d.highestLoad, term.HighestLoad)
	gauge(d.outOfBand, float64(term.OutOfBand))
	gauge(d.deferred, float64(term.Deferred))
	gauge(d.movesHeld, float64(term.MovesHeld))
	gauge(d.evictionsHeld, float64(term.EvictionsHeld))
	gauge(d.massLoss, indicator(term.MassLoss))
	gauge(d.lastEnd, float64(term.Start.Add(term.Total).UnixNano())/float64(time.Second))
	gauge(d.lastTook, term.Total.Seconds())
	gauge(d.epoch, float64(term.Term.Epoch))
	gauge(d.number, float64(term.Term.Number))
	return out
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
