package worker

// The refusal of calls: because a later term was seen (C7), because the call is for
// another incarnation (W4), or because the worker has no lease (W5).

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Fence raises the fence to t, as a call of term t would: the worker then refuses
// writes of lower terms and writes without a term. A transport calls Fence when it
// has learned the current term, for example when it registers, before it delivers
// any call. A new worker knows no term, and would otherwise accept the first term
// that arrives. If t is not higher than the fence, Fence does nothing. It believes t,
// however high: a transport that does not trust its source checks Term.Credible first.
func (w *Worker[T]) Fence(t orchestrator.Term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raise(t)
}

// Seen returns the highest term of any call or Fence, or the zero Term if there was
// none. With Seen a transport tells the leader of an earlier epoch that it has a
// successor.
func (w *Worker[T]) Seen() orchestrator.Term {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fence
}

// raise raises the fence to t if t is higher. The caller holds mu.
func (w *Worker[T]) raise(t orchestrator.Term) {
	if t.Compare(w.fence) > 0 {
		w.fence = t
	}
}

// ContextWithIncarnation returns a context for calls of a [Worker] that are meant
// only for incarnation n. A transport calls it with the number that came with the
// call. If the worker has another incarnation, List and writes fail with
// [ErrIncarnation], and the call's term does not raise the fence. The check is part
// of the step in which the call takes effect, so a [Worker.Rejoin] cannot come
// between them.
func ContextWithIncarnation(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, incarnationKey{}, n)
}

type incarnationKey struct{}

// admitRead raises the fence to the term of a call, if the call has one and it is
// credible, and returns an error if the call must not read. The caller holds mu.
func (w *Worker[T]) admitRead(c caller) error {
	if c.hasIncarnation && c.incarnation != w.leasePeriod.incarnation {
		return ErrIncarnation // without the number, with which the caller could call again
	}
	return w.admitTerm(c)
}

// admitTerm is admitRead without the check of the incarnation.
func (w *Worker[T]) admitTerm(c caller) error {
	if !c.hasTerm {
		return nil
	}
	if !c.term.Credible(w.fence) {
		return fmt.Errorf("%w: term %d of epoch %d is not credible, the worker has seen epoch %d",
			orchestrator.ErrRejected, c.term.Number, c.term.Epoch, w.fence.Epoch)
	}
	w.raise(c.term)
	if c.term.Epoch < w.fence.Epoch {
		return fmt.Errorf("%w: the call is of epoch %d, the worker has seen %d",
			orchestrator.ErrDeposed, c.term.Epoch, w.fence.Epoch)
	}
	return nil
}

// admitWrite raises the fence to the term of a call, if the call has one. It returns
// an error if a write of that call must not be applied now. The caller holds mu
// until the write has been applied. *came is the lease period in which the write arrived;
// admitWrite sets it if it is nil.
func (w *Worker[T]) admitWrite(c caller, came **leasePeriod) error {
	if err := w.admitRead(c); err != nil {
		return err
	}
	switch {
	case !c.hasTerm && w.fence != (orchestrator.Term{}):
		return fmt.Errorf("%w: the write has no term, the worker has seen term %d of epoch %d",
			orchestrator.ErrStale, w.fence.Number, w.fence.Epoch)
	case c.hasTerm && c.term.Number < w.fence.Number:
		return fmt.Errorf("%w: the write is of term %d, the worker has seen %d",
			orchestrator.ErrStale, c.term.Number, w.fence.Number)
	case c.ended != nil:
		return fmt.Errorf("%w: the context ended before the write was applied: %w",
			orchestrator.ErrRejected, c.ended)
	}
	if *came == nil {
		*came = w.leasePeriod
	}
	if *came != w.leasePeriod {
		return fmt.Errorf("%w: the worker has rejoined since the write arrived", orchestrator.ErrRejected)
	}
	if err := w.checkLease(); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
	}
	return nil
}

// caller is the information about a call in its context. It is read before mu is
// locked, because a context may run foreign code.
type caller struct {
	term           orchestrator.Term
	hasTerm        bool
	incarnation    uint64
	hasIncarnation bool
	ended          error // the cause, if the context has ended
}

func callerOf(ctx context.Context) caller {
	c := caller{ended: context.Cause(ctx)}
	c.term, c.hasTerm = orchestrator.TermFromContext(ctx)
	c.incarnation, c.hasIncarnation = ctx.Value(incarnationKey{}).(uint64)
	return c
}
