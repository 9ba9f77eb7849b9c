package orchestrator

// The log of a term.

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// remindEvery is the interval at which an unchanged condition is logged again.
const remindEvery = time.Minute

// reminder limits the log of a lasting condition: it is logged when it begins or
// changes, then once a minute. The caller zeroes the reminder when the condition ends.
type reminder struct {
	what    string
	at      time.Time
	omitted int
}

// due reports whether to log what now, and how many times it was omitted since it was
// last logged.
func (r *reminder) due(what string, now time.Time) (omitted int, due bool) {
	if what == r.what && now.Sub(r.at) < remindEvery {
		r.omitted++
		return 0, false
	}
	omitted = r.omitted
	*r = reminder{what: what, at: now}
	return omitted, true
}

// withOmitted adds the number of omitted lines to the attributes.
func withOmitted(omitted int, args ...any) []any {
	if omitted > 0 {
		args = append(args, "omitted", omitted)
	}
	return args
}

// log logs the events of the term, at Debug if there were none. before and plan are the
// plans of the last term and this one.
func (t *termRun[W, T]) log(ctx context.Context, before, plan *Plan[W, T]) {
	changes := plan.Changes
	l := t.o.cfg.logger.With("epoch", t.id.Epoch, "term", t.id.Number)
	for _, w := range t.silenced {
		l.Warn("worker silent", "worker", w.name, "err", w.err)
	}
	for _, w := range t.lost {
		args := []any{"worker", w.name}
		if w.Heard {
			args = append(args, "last_answer", w.Since)
		}
		l.Warn("worker declared lost, tasks start elsewhere", args...)
	}
	for _, w := range t.returned {
		l.Info("worker answers again", "worker", w.name)
	}
	t.logMassLoss(l)
	t.logQuarantines(l, before.Paused, plan.Paused)
	t.logFailing(l, plan)
	still := t.logStopping(l, before.Changes, changes)
	if l.Enabled(ctx, slog.LevelDebug) {
		for i := range changes {
			l.LogAttrs(ctx, slog.LevelDebug, "change", changes[i].attrs()...)
		}
	}
	level := slog.LevelDebug
	if len(t.decision.Changes) > still {
		level = slog.LevelInfo
	}
	s := &t.stats
	l.Log(ctx, level, "term", "changes", len(t.decision.Changes), "adds", s.Adds, "lower_bound", s.LowerBound,
		"missing", s.Instances.Missing, "waiting", len(plan.Waiting), "late", s.Workers.Late,
		"quarantined", s.Workers.Quarantined, "failures", len(t.failures), "took", s.Total)
}

// logQuarantines logs the quarantines that began or ended in this term.
func (t *termRun[W, T]) logQuarantines(l *slog.Logger, before, paused []Pause[W, T]) {
	was := make(map[W]bool)
	for i := range before {
		if before[i].Kind == PauseWorker {
			was[before[i].Worker] = true
		}
	}
	for i := range paused {
		p := &paused[i]
		if p.Kind == PauseWorker && !was[p.Worker] {
			l.Warn("worker quarantined", "worker", p.Worker, "until_term", p.Until, "failures", p.Failures, "err", p.Err)
		}
		if p.Kind == PauseWorker {
			delete(was, p.Worker)
		}
	}
	for _, w := range t.workers { // in order
		if was[w.name] {
			l.Info("worker no longer quarantined", "worker", w.name)
		}
	}
}

// logFailing logs that all moves pause, that tasks fail on several workers, and that
// missing tasks wait for a worker that never answered.
func (t *termRun[W, T]) logFailing(l *slog.Logger, plan *Plan[W, T]) {
	var suspect, moves *Pause[W, T]
	suspects := 0
	for i := range plan.Paused {
		switch p := &plan.Paused[i]; p.Kind {
		case PauseTask:
			suspects++
			suspect = p
		case PauseMoves:
			moves = p
		case PauseWorker, PauseStart, PauseStop:
		}
	}
	remind := func(r *reminder, holds bool, message string, args func() []any) {
		if !holds {
			*r = reminder{}
			return
		}
		if omitted, due := r.due(message, t.stats.Start); due {
			l.Warn(message, withOmitted(omitted, args()...)...)
		}
	}
	remind(&t.o.failing.moves, moves != nil, "starts fail, moves paused", func() []any {
		return []any{"until_term", moves.Until, "err", moves.Err}
	})
	remind(&t.o.failing.tasks, suspect != nil, "tasks fail on several workers", func() []any {
		return []any{"tasks", suspects, "task", suspect.Task, "until_term", suspect.Until, "err", suspect.Err}
	})
	i := slices.IndexFunc(plan.Waiting, func(w Waiting[W, T]) bool { return w.Reason == ReasonNeverAnswered })
	remind(&t.o.failing.neverAnswered, i >= 0, "worker never answered, missing tasks wait", func() []any {
		return []any{"worker", plan.Waiting[i].Worker, "waiting", len(plan.Waiting)}
	})
}

// logMassLoss logs that most workers are silent.
func (t *termRun[W, T]) logMassLoss(l *slog.Logger) {
	r := &t.o.massLoss
	args := []any{"silent", t.stats.Workers.Silent, "answering", t.stats.Workers.Answering}
	if !t.stats.MassLoss {
		if *r != (reminder{}) {
			*r = reminder{}
			l.Info("most workers answer again", args...)
		}
		return
	}
	omitted, due := r.due("mass loss", t.stats.Start)
	switch {
	case !due:
	case t.o.cfg.grace == HoldUntilRemoved: // none would be declared lost anyway
		l.Warn("most workers silent, this leader may be cut off", withOmitted(omitted, args...)...)
	default:
		l.Error("most workers silent, none declared lost", withOmitted(omitted, args...)...)
	}
}

// logStopping logs a task whose stop was under way in the last term and still is, and
// returns the number of such tasks. A healthy stop does not take two terms.
func (t *termRun[W, T]) logStopping(l *slog.Logger, before, changes []Change[W, T]) (still int) {
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
		l.Warn("task not stopping", withOmitted(omitted, "task", first.Task, "worker", first.From, "tasks", still)...)
	}
	return still
}
