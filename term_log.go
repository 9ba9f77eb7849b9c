package orchestrator

import (
	"context"
	"fmt"
	"log/slog"
	"slices"

	"github.com/f8949c05/orchestrator/internal/loglimit"
)

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
	switch until, was := t.stats.InitialWait, before.Stats.InitialWait; {
	case !until.IsZero() && was.IsZero():
		l.Info("waiting for workers to register, nothing starts that they may run", "until", until)
	case until.IsZero() && !was.IsZero():
		l.Info("no longer waiting for workers to register", "workers", len(t.workers), "missing", t.stats.Instances.Missing)
	}
	t.logMassLoss(l)
	t.logStorm(l)
	t.logQuarantines(l, before, plan)
	t.logFailing(l, plan)
	still := t.logStopping(l, before.Changes, changes)
	if l.Enabled(ctx, slog.LevelDebug) {
		for i := range changes {
			l.LogAttrs(ctx, slog.LevelDebug, "change", changes[i].attrs()...)
		}
	}
	level := slog.LevelDebug
	s := &t.stats
	if len(t.decision.Changes)-s.Outcomes[OutcomeFailed] > still { // Run logs what failed
		level = slog.LevelInfo
	}
	l.Log(ctx, level, "term", "changes", len(t.decision.Changes), "adds", s.Adds, "lower_bound", s.LowerBound,
		"missing", s.Instances.Missing, "waiting", len(plan.Waiting), "late", s.Workers.Late,
		"quarantined", s.Workers.Quarantined, "failures", len(t.failures), "took", s.Total)
}

// attrs returns the attributes of the change for the log.
func (c *Change[W, T]) attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Any("op", c.Kind.Op), slog.Any("reason", c.Kind.Reason), slog.Any("task", c.Task)}
	if c.Kind.Op != Start {
		attrs = append(attrs, slog.Any("from", c.From))
	}
	if c.Kind.Op != Stop {
		attrs = append(attrs, slog.Any("to", c.To))
	}
	if c.hasWas() {
		attrs = append(attrs, slog.Any("was", c.Was))
	}
	attrs = append(attrs, slog.Any("outcome", c.Outcome))
	if c.Err != nil {
		attrs = append(attrs, slog.Any("err", c.Err))
	}
	return attrs
}

// logQuarantines logs the quarantines that began or ended in this term.
func (t *termRun[W, T]) logQuarantines(l *slog.Logger, before, plan *Plan[W, T]) {
	was := make(map[W]bool)
	for i := range before.Workers {
		if w := &before.Workers[i]; w.Quarantined {
			was[w.Name] = true
		}
	}
	for i := range plan.Paused {
		if p := &plan.Paused[i]; p.Kind == PauseWorker && !was[p.Worker] {
			l.Warn("worker quarantined", "worker", p.Worker, "until_term", p.Until, "failures", p.Failures, "err", p.Err)
		}
	}
	for i := range plan.Workers {
		if w := &plan.Workers[i]; was[w.Name] && !w.Quarantined {
			l.Info("worker no longer quarantined", "worker", w.Name)
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
	warn := func(limit *loglimit.Limiter, holds bool, message string, args func() []any) {
		if !holds {
			limit.Reset()
			return
		}
		if omitted, ok := limit.Take(t.stats.Start, message); ok {
			l.Warn(message, append(args(), loglimit.Omitted(omitted))...)
		}
	}
	warn(&t.o.failing.moves, moves != nil, "starts fail, moves paused", func() []any {
		return []any{"until_term", moves.Until, "err", moves.Err}
	})
	warn(&t.o.failing.tasks, suspect != nil, "tasks fail on several workers", func() []any {
		return []any{"tasks", suspects, "task", suspect.Task, "until_term", suspect.Until, "err", suspect.Err}
	})
	i := slices.IndexFunc(plan.Waiting, func(w Waiting[W, T]) bool { return w.Reason == ReasonNeverAnswered })
	warn(&t.o.failing.neverAnswered, i >= 0, "worker never answered, missing tasks wait", func() []any {
		return []any{"worker", plan.Waiting[i].Worker, "waiting", len(plan.Waiting)}
	})
}

// logMassLoss logs that most workers are silent.
func (t *termRun[W, T]) logMassLoss(l *slog.Logger) {
	args := []any{"silent", t.stats.Workers.Silent, "answering", t.stats.Workers.Answering}
	if !t.stats.MassLoss {
		if t.o.massLoss.Reset() {
			l.Info("most workers answer again", args...)
		}
		return
	}
	omitted, ok := t.o.massLoss.Take(t.stats.Start, "mass loss")
	args = append(args, loglimit.Omitted(omitted))
	switch {
	case !ok:
	case t.o.cfg.GracePeriod == HoldUntilRemoved: // none would be declared lost anyway
		l.Warn("most workers silent, this leader may be cut off", args...)
	default:
		l.Error("most workers silent, none declared lost", args...)
	}
}

// logStorm logs that changed labels would evict too many instances.
func (t *termRun[W, T]) logStorm(l *slog.Logger) {
	held := t.stats.EvictionsHeld
	if held == 0 {
		if !t.undecided && t.o.storm.Reset() {
			l.Info("labels evict instances again")
		}
		return
	}
	if omitted, ok := t.o.storm.Take(t.stats.Start, "storm"); ok {
		l.Error("changed labels would evict too many instances, none evicted for five minutes",
			"instances", held, "running", t.stats.Instances.Running, loglimit.Omitted(omitted))
	}
}

// logStopping logs a task whose stop was under way in the last term and still is, and
// returns the number of such tasks. A healthy stop does not take two terms.
func (t *termRun[W, T]) logStopping(l *slog.Logger, before, changes []Change[W, T]) (still int) {
	type stop struct {
		worker W
		task   T
	}
	last := make(map[stop]bool)
	for i := range before {
		if c := &before[i]; c.Outcome == OutcomeStopping {
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
		t.o.stopping.Reset()
		return 0
	}
	if omitted, ok := t.o.stopping.Take(t.stats.Start, fmt.Sprint(still, first.From, first.Task)); ok {
		l.Warn("task not stopping", "task", first.Task, "worker", first.From, "tasks", still, loglimit.Omitted(omitted))
	}
	return still
}
