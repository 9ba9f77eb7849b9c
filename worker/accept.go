package worker

// The user's say in what the worker accepts.

import "context"

// ask calls the user's function, which must not take the worker down. No lock
// is held.
func (w *Worker[T]) ask(ctx context.Context, task T, content []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(task, v)
		}
	}()
	return w.hooks.accept(ctx, task, content)
}
