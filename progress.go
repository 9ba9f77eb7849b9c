package orchestrator

import (
	"errors"
	"time"
)

// Phase is a part of a term.
type Phase string

// The phases of a term, in order.
const (
	PhaseList  Phase = "list"
	PhasePlan  Phase = "plan"
	PhaseWrite Phase = "write"
)

// Progress is a term under way. The zero value stands for none.
type Progress[W comparable] struct {
	Term  Term      `json:"term"`
	Start time.Time `json:"start,omitzero"` // of the term
	Phase Phase     `json:"phase"`
	Since time.Time `json:"since,omitzero"` // of the phase
	// Total is the number of workers for which the listing waits, or of changes to write,
	// and Done how many of them have answered or ended. Both are 0 in PhasePlan.
	Done  int `json:"done"`
	Total int `json:"total"`
	// WaitingFor holds the workers with a call for which the term waits, the first eight of
	// them, so that it is short in a large fleet.
	WaitingFor []W `json:"waiting_for,omitempty"`
}

// mostWaitingFor bounds Progress.WaitingFor.
const mostWaitingFor = 8

// underWay is a phase of the term under way. It does not change.
type underWay[W, T comparable] struct {
	Progress[W] // without what changes during the phase

	listing *listing[W, T] // nil outside of PhaseList
	writing *writing[W, T] // nil outside of PhaseWrite
}

// enter begins a phase of the term under way.
func (o *Orchestrator[W, T]) enter(t Term, start time.Time, phase Phase, l *listing[W, T], w *writing[W, T]) {
	o.underWay.Store(&underWay[W, T]{
		Progress: Progress[W]{Term: t, Start: start, Phase: phase, Since: time.Now()}, listing: l, writing: w,
	})
}

// Progress returns the progress of the term under way, and the zero value between terms. It
// never waits for a term, and takes O(workers).
func (o *Orchestrator[W, T]) Progress() Progress[W] {
	now := o.underWay.Load()
	if now == nil {
		return Progress[W]{}
	}
	p := now.Progress
	o.inflight.mu.Lock()
	defer o.inflight.mu.Unlock()
	switch l, w := now.listing, now.writing; {
	case l != nil && !l.closed:
		p.Total = len(l.awaited.order)
		p.Done = p.Total - l.pending
		for _, i := range l.awaited.order {
			if a := &l.answers[i]; a.asked && errors.Is(a.err, errNotCalled) && !p.waitFor(l.workers[i].name) {
				break
			}
		}
	case w != nil:
		p.Total = len(w.changes)
		p.Done = p.Total - int(w.left.Load())
		// A call of the listing that is still under way has an earlier deadline.
		first := p.Since.Add(o.cfg.CommunicatorTimeout)
		for _, worker := range w.workers {
			if worker.slot.busy && !worker.slot.deadline.Before(first) && !p.waitFor(worker.name) {
				break
			}
		}
	}
	return p
}

// waitFor appends a worker, and reports whether there is room for more.
func (p *Progress[W]) waitFor(name W) bool {
	p.WaitingFor = append(p.WaitingFor, name)
	return len(p.WaitingFor) < mostWaitingFor
}
