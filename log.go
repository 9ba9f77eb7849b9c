package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// What a term logs: news at once, and what goes on and on now and then.

// remindEvery is how often what has not changed is logged again.
const remindEvery = time.Minute

// reminder has what lasts logged when it begins, when it changes, and now and then.
// It is zeroed when there is nothing any more.
type reminder struct {
	what    string
	at      time.Time
	omitted int
}

// due reports whether what is to be logged now, and how often it was not since it
// was last.
func (r *reminder) due(what string, now time.Time) (omitted int, due bool) {
	if what == r.what && now.Sub(r.at) < remindEvery {
		r.omitted++
		return 0, false
	}
	omitted = r.omitted
	*r = reminder{what: what, at: now}
	return omitted, true
}

// withOmitted adds to what is logged how often it was not.
func withOmitted(omitted int, args ...any) []any {
	if omitted > 0 {
		args = append(args, "omitted", omitted)
	}
	return args
}

// log says what happened, and nothing above Debug where nothing did. before are the
// changes of the term before.
func (t *term[W, T]) log(ctx context.Context, before, changes []Change[W, T]) {
	l := t.o.cfg.logger.With("epoch", t.id.Epoch, "term", t.id.Number)
	for _, w := range t.silenced {
		l.Warn("worker is silent", "worker", w.name, "err", w.err)
	}
	for _, w := range t.lost {
		l.Warn("worker is lost", "worker", w.name, "last_answer", w.since)
	}
	for _, w := range t.returned {
		l.Info("worker answers again", "worker", w.name)
	}
	t.logMassLoss(l)
	still := t.logStopping(l, before, changes)
	if l.Enabled(ctx, slog.LevelDebug) {
		for i := range changes {
			l.LogAttrs(ctx, slog.LevelDebug, "change", changes[i].attrs()...)
		}
	}
	level := slog.LevelDebug
	if len(t.decision.changes) > still {
		level = slog.LevelInfo
	}
	s := &t.stats
	l.Log(ctx, level, "term", "changes", len(t.decision.changes), "adds", s.Adds, "lower_bound", s.LowerBound,
		"missing", s.Instances.Missing, "failures", len(t.failures), "took", s.Total)
}

// logMassLoss says that too many workers are silent, and what of it.
func (t *term[W, T]) logMassLoss(l *slog.Logger) {
	r := &t.o.massLoss
	args := []any{"silent", t.stats.Workers.Silent, "answering", t.stats.Workers.Answering}
	if !t.stats.MassLoss {
		if *r != (reminder{}) {
			*r = reminder{}
			l.Info("no longer too many workers are silent", args...)
		}
		return
	}
	omitted, due := r.due("mass loss", t.stats.Start)
	switch {
	case !due:
	case t.o.cfg.grace == HoldUntilRemoved: // nobody would be given up anyway
		l.Warn("too many workers are silent at once: perhaps this leader is cut off", withOmitted(omitted, args...)...)
	default:
		l.Error("too many workers are silent at once: none is given up for lost", withOmitted(omitted, args...)...)
	}
}

// logStopping names a task that was stopping in the last term too, and still is. It
// returns how many there are. A task that stops as it should takes no two terms.
func (t *term[W, T]) logStopping(l *slog.Logger, before, changes []Change[W, T]) (still int) {
	type stop struct {
		worker W
		task   T
	}
	var last map[stop]bool
	for i := range before {
		if c := &before[i]; c.Outcome == OutcomeStopping {
			if last == nil {
				last = make(map[stop]bool)
			}
			last[stop{c.From, c.Task}] = true
		}
	}
	var first *Change[W, T]
	for i := range changes {
		if c := &changes[i]; c.Outcome == OutcomeStopping && last[stop{c.From, c.Task}] {
			if still++; first == nil {
				first = c
			}
		}
	}
	if still == 0 {
		t.o.stopping = reminder{}
		return 0
	}
	if omitted, due := t.o.stopping.due(fmt.Sprint(still, first.From, first.Task), t.stats.Start); due {
		l.Warn("a task does not stop", withOmitted(omitted, "task", first.Task, "worker", first.From, "tasks", still)...)
	}
	return still
}
