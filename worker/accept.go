package worker

// The user's say in what the worker accepts.

import (
	"fmt"

	"github.com/f8949c05/orchestrator"
)

// Accepts asks what [WithAccept] says of a task: nil, or an error that wraps
// [orchestrator.ErrRejected] and the function's. It is for a transport that
// wants to know before it takes the task over from anyone; AddWith asks again.
func (w *Worker[T]) Accepts(task T, content []byte) error {
	if w.hooks.accept == nil {
		return nil
	}
	if err := w.ask(task, content); err != nil {
		return fmt.Errorf("%w: %w", orchestrator.ErrRejected, err)
	}
	return nil
}

// ask calls the user's function, which must not take the worker down. No lock
// is held.
func (w *Worker[T]) ask(task T, content []byte) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = w.panicked(task, v)
		}
	}()
	return w.hooks.accept(task, content)
}
