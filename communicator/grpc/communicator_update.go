package grpc

// Updates of the contents of running tasks.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// errNotGiven reports that a worker runs tasks that it was not given.
var errNotGiven = errors.New("worker has not stopped tasks that it was not given")

// update gives tasks their newest content, and stops those that the worker was not
// given, as far as one message allows. It takes at most half of the remaining time.
// It returns the tasks that have stopped, or [errNotGiven] if the worker has not
// stopped every task that it should. It writes only if the call belongs to a term.
func (c *Communicator) update(ctx context.Context, l *link, s *snapshot) (stopped map[string]bool, err error) {
	if c.settings.Contents == nil || termOf(ctx) == nil {
		return nil, nil
	}
	stock, counted := c.settings.Contents.(RevisedContents)
	var now int64
	if counted {
		if now = stock.Revision(); now == s.current.Load() {
			return nil, nil
		}
	}
	changes, notGiven, err := c.outdated(l, s)
	switch {
	case len(changes) == 0 && notGiven > 0: // they are stopping, or cannot be sent
		return nil, errors.Join(errNotGiven, err)
	case len(changes) == 0:
		if err == nil && counted {
			s.current.Store(now)
		}
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	madeUp := slices.IndexFunc(changes, func(c *orchestratorv1.Change) bool { return c.Op == orchestratorv1.Op_OP_REMOVE })
	if madeUp >= 0 {
		c.settings.Logger.Warn("worker lists tasks it was not given, stopping them",
			"worker", l.worker, "first", wire.Truncate(string(changes[madeUp].GetTask()), identity.MaxName))
	}
	answers, failed := l.apply(ctx, changes)
	if failed != nil && notGiven > 0 {
		return nil, errors.Join(errNotGiven, failed)
	} else if failed != nil {
		return nil, failed
	}
	for i, answer := range answers {
		switch task := string(changes[i].GetTask()); {
		case answer != nil: // keep one error
			err = fmt.Errorf("task %q: %w", task, answer)
		case changes[i].GetOp() == orchestratorv1.Op_OP_REMOVE:
			if stopped == nil {
				stopped = make(map[string]bool)
			}
			stopped[task] = true
		}
	}
	if len(stopped) < notGiven {
		return nil, errors.Join(errNotGiven, err)
	}
	return stopped, err
}

// maxForeign is how many tasks a worker may list that are neither expected nor assigned
// to it: a term interns and stops each of them.
const MaxForeign = 4096

// outdated returns the changes for tasks with outdated content, the number of tasks
// that the worker was not given, and an error for those that cannot be sent. A task
// that is not assigned to the worker gets no content, because the worker may have
// invented it. The worker is told to stop the task, and the next term gives the task to
// a worker again.
func (c *Communicator) outdated(l *link, s *snapshot) (changes []*orchestratorv1.Change, notGiven int, err error) {
	length, full, foreign := 0, false, 0
	for i := range s.Tasks {
		t := &s.Tasks[i]
		content, version, ok := c.settings.Contents.Content(t.Name)
		given := t.Given || l.assigned == nil
		switch {
		case given:
		case ok:
			notGiven++
		default:
			foreign++
		}
		if !ok || full || t.State == worker.Stopping || given && version <= t.Version {
			continue
		}
		change := &orchestratorv1.Change{Op: orchestratorv1.Op_OP_UPDATE, Task: []byte(t.Name)}
		if !given {
			change.Op = orchestratorv1.Op_OP_REMOVE
		} else {
			change.Content, change.ContentVersion, change.Receipt = content, version, c.receipt(l.worker, t.Name, version)
		}
		if big := c.fits(change); big != nil {
			err = fmt.Errorf("task %q: %w", t.Name, big)
			continue
		}
		length += lengthOf(change)
		if full = len(changes) > 0 && (length > c.limit || len(changes) == c.most); !full {
			changes = append(changes, change)
		}
	}
	if foreign > MaxForeign {
		return nil, foreign, fmt.Errorf("it lists %d tasks that are not expected: at most %d", foreign, MaxForeign)
	}
	return changes, notGiven, err
}
