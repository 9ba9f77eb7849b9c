package worker

// What a task is given to run with, and what its context tells.

import "context"

// Grant is what an owner gets with its task. Nobody changes the bytes any more:
// they are not copied.
type Grant struct {
	// Content is what the task is to work on.
	Content []byte
	// Version tells older content from newer; 0: there is none yet.
	Version int64
	// Token rises with each new owner of the task, for stores that refuse what
	// comes with an older one than they have seen; 0: none. Scope says among
	// which tokens it rises: those of different scopes cannot be compared.
	Token, Scope uint64
	// Receipt proves to the side that gave the task, which made it, that this worker
	// was given this content. It belongs to Version.
	Receipt string
}

// Content returns the content of the task whose function was given ctx, and its
// version: those it was started with, or, in the function given to
// [WithUpdate], the new ones. Nobody may change the bytes. It returns nil and 0
// where there are none.
func Content(ctx context.Context) (content []byte, version int64) {
	in, _ := insightOf(ctx)
	return in.grant.Content, in.grant.Version
}

// Token returns a number that rises with each new owner of the task whose
// function was given ctx, and the scope in which it does; 0 and 0 where there
// is none. See the package documentation for what it is good for.
func Token(ctx context.Context) (token, scope uint64) {
	in, _ := insightOf(ctx)
	return in.grant.Token, in.grant.Scope
}

// Check says whether the task whose function was given ctx may go on, reading
// the clock now: a process that was paused learns of it by its first Check,
// though nothing in it had the time yet to end any context. It returns the
// cause of ctx where that has ended, [ErrLeaseLost] where the lease can have,
// and else nil. With a context that is no task's it returns the cause alone.
//
// A task that is being stopped may ask Check(context.WithoutCancel(ctx)) whether
// it may still write: that returns nil until only the margin of the lease is
// left (see [WithLease]).
//
// A nil answer is about the moment of the call. What is done afterwards can
// still be late; only a token protects from that.
func Check(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if in, ok := insightOf(ctx); ok {
		return in.tenure.lost()
	}
	return nil
}

// insight is what a task's context knows.
type insight struct {
	grant  Grant
	tenure *tenure
	ready  func() // nil without WithReadiness
	unpin  func() // nil without WithCompletion
}

type insightKey struct{}

func (in insight) into(ctx context.Context) context.Context {
	return context.WithValue(ctx, insightKey{}, in)
}

func insightOf(ctx context.Context) (in insight, ok bool) {
	in, ok = ctx.Value(insightKey{}).(insight)
	return in, ok
}
