package orchestrator

import (
	"cmp"
	"context"
	"log/slog"
)

// Term is the identity of a term: which leader, and which of its terms. It
// travels in the context of every call that the term makes, so that a worker
// can refuse a write that comes from a deposed leader or from a term that is
// already over (see [Communicator], C7).
//
// Terms are ordered by epoch first, then by number. The zero Term is lower
// than every term that an [Orchestrator] runs.
type Term struct {
	// Epoch identifies the leader; a later leader has a higher one. See
	// [WithEpoch].
	Epoch uint64 `json:"epoch"`
	// Number counts the leader's terms, from 1.
	Number uint64 `json:"number"`
}

// Compare returns -1 if t is lower than u, 0 if they are equal, and +1 if t is
// higher.
func (t Term) Compare(u Term) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Number, u.Number))
}

// LogValue shows the term as a group of its epoch and its number.
func (t Term) LogValue() slog.Value {
	return slog.GroupValue(slog.Uint64("epoch", t.Epoch), slog.Uint64("number", t.Number))
}

type termKey struct{}

// ContextWithTerm returns a context that carries t. Transports call it on the
// worker's side, with the identity that they brought over the wire.
func ContextWithTerm(ctx context.Context, t Term) context.Context {
	return context.WithValue(ctx, termKey{}, t)
}

// TermFromContext returns the identity of the term that a call belongs to. It
// reports false for a call that belongs to no term, such as those of
// a term under [WithDryRun]; such a call may read, but must not raise a worker's
// fence.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}
