package worker

// What an owner gives a task to run with, and what the task's context carries.

import "context"

// Grant is what a worker receives with a task. Content is not copied: neither side
// may change the bytes.
type Grant struct {
	// Content is the input of the task.
	Content []byte
	// Version rises with each new content; 0: no content yet.
	Version int64
	// Token rises with each new owner of the task, so that a store can refuse a
	// token lower than it has seen; 0: none. Tokens of different scopes cannot be
	// compared.
	Token, Scope uint64
	// Receipt belongs to Version. The side that assigned the task made it, and
	// accepts it as proof that this worker was given this content.
	Receipt string
}

// Content returns the content of the task whose function was given ctx, and its
// version: those at the start of the run, or the new ones in the function given to
// [WithUpdate]. The caller must not change the bytes. Content returns nil and 0 if
// there is no content.
func Content(ctx context.Context) (content []byte, version int64) {
	in, _ := insightOf(ctx)
	return in.grant.Content, in.grant.Version
}

// Token returns a number that rises with each new owner of the task whose function
// was given ctx, and the scope in which it rises. It returns 0 and 0 if there is
// none. The package documentation describes the use of tokens.
func Token(ctx context.Context) (token, scope uint64) {
	in, _ := insightOf(ctx)
	return in.grant.Token, in.grant.Scope
}

// Check returns an error if the task whose function was given ctx must not continue:
// the cause of ctx if ctx has ended, or [ErrLeaseLost] if the lease can have ended.
// With a context that is not a task's, it returns only the cause. Check reads the
// clock, so after a pause of the process it reports a lost lease before the context
// has ended.
//
// A task that is being stopped may call Check(context.WithoutCancel(ctx)) to learn
// whether it may still write. The result is nil until only the margin of the lease
// is left (see [WithLease]).
//
// A nil result holds at the time of the call. A later write can still be too late;
// only a token protects against that.
func Check(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if in, ok := insightOf(ctx); ok {
		return in.leasePeriod.lost()
	}
	return nil
}

// insight is the worker's value in a task's context.
type insight struct {
	grant       Grant
	leasePeriod *leasePeriod
	ready       func() // nil without WithReadiness
	unpin       func() // nil without WithCompletion
}

type insightKey struct{}

func (in insight) into(ctx context.Context) context.Context {
	return context.WithValue(ctx, insightKey{}, in)
}

func insightOf(ctx context.Context) (in insight, ok bool) {
	in, ok = ctx.Value(insightKey{}).(insight)
	return in, ok
}
