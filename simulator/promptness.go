package simulator

// The review of Run: when it begins terms, and how it ends (T14).

import (
	"context"
	"errors"
	"time"

	"github.com/f8949c05/orchestrator"
)

// checkPrompt checks that the term began soon after the earliest change that the
// term before did not know: once that was over, and a moment had passed.
func (r *review) checkPrompt() {
	l := r.l
	last := l.latest
	l.latest = spell{since: r.began, heard: r.ended}
	if !r.w.run || last.since.IsZero() || l.paused {
		return
	}
	for _, v := range l.views {
		if !v.different || !v.at.After(last.since) || v.at.After(r.began) {
			continue
		}
		due := v.at
		if last.heard.After(due) {
			due = last.heard
		}
		if wait := r.began.Sub(due); wait > 26*settle {
			r.fail(Prompt, "a change was heard of %v before the term, and nothing else was to wait for in the last %v of it", r.began.Sub(v.at), wait)
		}
		return
	}
}

// runs has a leader use Run, and checks what that returns.
func (l *leader) runs(ctx context.Context) {
	<-time.After(loopLane(l.number).after(0))
	err := l.o.Run(ctx, whole(l.w.every))
	if want := context.Cause(ctx); want != nil && !errors.Is(err, want) || want == nil && !errors.Is(err, orchestrator.ErrDeposed) {
		l.w.mu.Lock()
		defer l.w.mu.Unlock()
		l.w.fail(l, orchestrator.Term{}, Prompt, "Run has returned %v, and its context has ended with %v", err, want)
	}
}
