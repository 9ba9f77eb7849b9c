package worker

// The user's decision whether the worker accepts a task.

import "context"

// ask calls the user's function and turns a panic into an error. The caller holds no
// lock.
func (w *Worker[T]) ask(ctx context.Context, task T, content []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(task, v)
		}
	}()
	return w.hooks.accept(ctx, task, content)
}
