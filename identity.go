package orchestrator

import (
	"cmp"
	"context"
	"log/slog"
)

// Term identifies a term by its leader's epoch and its number. It travels in the
// context of every call that the term makes, so that a worker can refuse writes of
// deposed leaders and past terms (see [Communicator], C7).
//
// Terms are ordered by epoch first, then by number. The zero Term is lower
// than every term that an [Orchestrator] runs.
type Term struct {
	// Epoch identifies the leader; a later leader has a higher epoch. See [WithEpoch].
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

// ContextWithTerm returns a context that carries t. A transport calls it on the
// worker's side with the term that came over the wire.
func ContextWithTerm(ctx context.Context, t Term) context.Context {
	return context.WithValue(ctx, termKey{}, t)
}

// TermFromContext returns the term of a call. It reports false for a call without one,
// such as those under [WithDryRun]. Such a call may read, but must not raise a worker's
// fence.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}
