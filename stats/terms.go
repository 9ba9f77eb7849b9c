package stats

// The metrics of terms.

import (
	"time"

	"github.com/f8949c05/orchestrator"
)

const phases = "term_duration_seconds"

// counted puts the values of a counter.
func counted(labels int) func(*Collector, *scrape) {
	return func(c *Collector, to *scrape) {
		for s, n := range c.counts {
			if s.name == to.name {
				to.put(float64(n), s.labels[:labels]...)
			}
		}
	}
}

// observed puts the values of a histogram.
func observed(c *Collector, to *scrape) {
	for s, h := range c.histograms {
		if s.name == to.name {
			to.all = append(to.all, h.metric(to.desc, s.labels[0]))
		}
	}
}

// termCounters returns the metrics of all terms.
func termCounters() []metric[*Collector] {
	return []metric[*Collector]{
		{"terms_total", "Terms that ended, by result.", []string{"result"}, counted(1)},
		{phases, "How long the phases of a term took.", []string{"phase"}, observed},
		{"changes_total", "Starts, stops and moves of instances that terms planned, by reason.", []string{"op", "reason"}, counted(2)},
		{"change_outcomes_total", "Outcomes of the changes that terms planned.", []string{"outcome"}, counted(1)},
		{"moves_excess_total", "Starts that terms planned beyond the fewest possible, those in moves included.", nil, counted(0)},
		{"worker_state_changes_total", "How often workers fell silent, were declared lost, or answered again.", []string{"to"}, counted(1)},
		{"calls_total", "Calls to workers, by result; a write in an apply counts as its own op.", []string{"op", "result"}, counted(2)},
		{"call_duration_seconds", "How long calls to workers took.", []string{"op"}, observed},
	}
}

// termGauges returns the metrics of the last term.
func termGauges() []metric[*orchestrator.TermStats] {
	return []metric[*orchestrator.TermStats]{
		{"workers", "Workers in the last term, by state.", []string{"state"}, func(t *orchestrator.TermStats, to *scrape) {
			to.put(float64(t.Workers.Answering), "answering")
			to.put(float64(t.Workers.Silent), "silent")
			to.put(float64(t.Workers.Lost), "lost")
		}},
		{"draining_workers", "Workers that are draining, whatever their state.", nil, one(func(t *orchestrator.TermStats) int { return t.Workers.Draining })},
		{"late_workers", "Workers that are not silent, but had not answered when the listing phase ended.", nil, one(func(t *orchestrator.TermStats) int { return t.Workers.Late })},
		{"quarantined_workers", "Workers that get no tasks because they failed to start some that others started.", nil, one(func(t *orchestrator.TermStats) int { return t.Workers.Quarantined })},
		{"stuck_calls", "Calls to workers that outlived their deadline and have not returned.", nil, one(func(t *orchestrator.TermStats) int { return t.Workers.Stuck })},
		{"instances", "Instances of tasks in the last term, by state; the states overlap.", []string{"state"}, func(t *orchestrator.TermStats, to *scrape) {
			for state, n := range map[string]int{
				"wanted": t.Instances.Wanted, "running": t.Instances.Running, "held": t.Instances.Held, "missing": t.Instances.Missing,
				"unplaceable": t.Instances.Unplaceable, "unexpected": t.Instances.Unexpected, "duplicate": t.Instances.Duplicate,
			} {
				to.put(float64(n), state)
			}
		}},
		{"load_spread", "Difference between the most and the fewest tasks on workers that can get tasks, after the last term.", nil, one(func(t *orchestrator.TermStats) int { return t.Spread })},
		{"highest_load_ratio", "Highest weight of a worker's tasks by its level; 0 unless weights differ.", nil, one(func(t *orchestrator.TermStats) float64 { return t.HighestLoad })},
		{"out_of_band_workers", "Workers whose weight is farther from their level than the band.", nil, one(func(t *orchestrator.TermStats) int { return t.OutOfBand })},
		{"deferred_moves", "Moves that the last term left to later terms.", nil, one(func(t *orchestrator.TermStats) int { return t.Deferred })},
		{"held_moves", "Moves for an even spread that wait, such as for a silent worker.", nil, one(func(t *orchestrator.TermStats) int { return t.MovesHeld })},
		{"held_evictions", "Instances that stay where labels forbid it, because changed labels would evict too many at once.", nil, one(func(t *orchestrator.TermStats) int { return t.EvictionsHeld })},
		{"mass_loss", "Whether no silent worker is declared lost because too many are silent.", nil, one(func(t *orchestrator.TermStats) float64 { return indicator(t.MassLoss) })},
		{"last_term_timestamp_seconds", "When the last term ended, in seconds since the Unix epoch.", nil, one(func(t *orchestrator.TermStats) float64 {
			return float64(t.Start.Add(t.Total).UnixNano()) / float64(time.Second)
		})},
		{"last_term_duration_seconds", "Duration of the whole last term.", nil, one(func(t *orchestrator.TermStats) float64 { return t.Total.Seconds() })},
		{"term_epoch", "Epoch of the last term: which leader ran it.", nil, one(func(t *orchestrator.TermStats) uint64 { return t.Term.Epoch })},
		{"term_number", "Number of the last term within its epoch.", nil, one(func(t *orchestrator.TermStats) uint64 { return t.Term.Number })},
	}
}
