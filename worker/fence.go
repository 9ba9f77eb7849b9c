package worker

// Which calls are refused: because a later term was seen (C7), or because the
// worker is another than they were meant for (W4), or has no lease (W5).

import (
	"context"
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Fence makes the worker behave as if a call of the term t had come: writes of
// lower terms, and of none, are refused from now on. A transport calls it when
// it has learned the current term, for instance when it registers and before
// it lets any call through, since a worker that has just begun knows of no term
// and would trust the first that comes. A t that is not higher than what was
// seen changes nothing.
func (w *Worker[T]) Fence(t orchestrator.Term) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.raise(t)
}

// Seen returns the highest term that a call, or Fence, has brought: with it a
// transport tells the leader of an earlier epoch that it has a successor. It is the
// zero Term if there was none.
func (w *Worker[T]) Seen() orchestrator.Term {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fence
}

// raise raises the fence to t, if that is higher. The lock is held.
func (w *Worker[T]) raise(t orchestrator.Term) {
	if t.Compare(w.fence) > 0 {
		w.fence = t
	}
}

// ContextWithIncarnation returns a context for calls of a [Worker] that are
// meant for the incarnation n alone. A transport calls it with what it brought
// over the wire. Where the worker has another, List fails and writes are
// refused, both with [ErrIncarnation], and nothing is learned from the call's
// term. That is looked at in the same step in which the call takes effect, so
// nothing gets through that a [Worker.Rejoin] has overtaken.
func ContextWithIncarnation(ctx context.Context, n uint64) context.Context {
	return context.WithValue(ctx, incarnationKey{}, n)
}

type incarnationKey struct{}

// admitRead raises the fence to the term of a call, if it has one, and says
// whether the call may read. The lock is held.
func (w *Worker[T]) admitRead(c caller) error {
	if c.hasIncarnation && c.incarnation != w.tenure.incarnation {
		return fmt.Errorf("%w: %d, the worker is %d", ErrIncarnation, c.incarnation, w.tenure.incarnation)
	}
	return w.admitTerm(c)
}

// admitTerm is admitRead for a call that was admitted before.
func (w *Worker[T]) admitTerm(c caller) error {
	if !c.hasTerm {
		return nil
	}
	w.raise(c.term)
	if c.term.Epoch < w.fence.Epoch {
		return fmt.Errorf("%w: the call is of epoch %d, the worker has seen %d",
			orchestrator.ErrDeposed, c.term.Epoch, w.fence.Epoch)
	}
	return nil
}

// admitWrite raises the fence to the term of a call, if it has one, and says
// whether a write of that call may be applied now. The lock is held, and must
// be held on until the write has been applied. came is the tenure in which the
// write came; it is noted there where that is now.
func (w *Worker[T]) admitWrite(c caller, came **tenure) error {
	if err := w.admitRead(c); err != nil {
		return err
	}
	switch {
	case !c.hasTerm && w.fence != (orchestrator.Term{}):
		return fmt.Errorf("%w: the write is of no term, the worker has seen term %d of epoch %d",
			orchestrator.ErrStale, w.fence.Number, w.fence.Epoch)
	case c.hasTerm && c.term.Number < w.fence.Number:
		return fmt.Errorf("%w: the write is of term %d, the worker has seen %d",
			orchestrator.ErrStale, c.term.Number, w.fence.Number)
	case c.ended != nil:
		return fmt.Errorf("%w: the call ended before the write could be applied: %w",
			orchestrator.ErrRejected, c.ended)
	}
	if *came == nil {
		*came = w.tenure
	}
	if *came != w.tenure {
		return fmt.Errorf("%w: the worker has rejoined since the write came", orchestrator.ErrRejected)
	}
	if err := w.holds(); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
	}
	return nil
}

// caller is what a call's context says about it. It is read before the lock is
// taken: a context may be of anyone's making.
type caller struct {
	term           orchestrator.Term
	hasTerm        bool
	incarnation    uint64
	hasIncarnation bool
	ended          error // why the context has ended, if it has
}

func callerOf(ctx context.Context) caller {
	c := caller{ended: context.Cause(ctx)}
	c.term, c.hasTerm = orchestrator.TermFromContext(ctx)
	c.incarnation, c.hasIncarnation = ctx.Value(incarnationKey{}).(uint64)
	return c
}
