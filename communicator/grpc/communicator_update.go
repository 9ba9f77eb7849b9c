package grpc

// Newer content for what runs already.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// revised is [Contents] that count: a number that rises, from 1, with each content
// that any task is given. Nobody has to look up each task of each list where it
// did not.
type revised interface{ revision() int64 }

// errNotGiven says that a worker runs on what it was not given.
var errNotGiven = errors.New("it lists tasks that it was not given, and has not stopped them")

// update gives tasks the content that they should have, and stops those that the
// worker was not given, as far as that fits into one message, and takes at most half
// of the time that is left. It returns the tasks that have stopped, or [errNotGiven]
// if the worker has not stopped all that it should. Only a call that belongs to a
// term writes.
func (c *Communicator) update(ctx context.Context, l *link, s *snapshot) (stopped map[string]bool, err error) {
	if c.settings.contents == nil || termOf(ctx) == nil {
		return nil, nil
	}
	stock, counted := c.settings.contents.(revised)
	var now int64
	if counted {
		if now = stock.revision(); now == s.current.Load() {
			return nil, nil
		}
	}
	changes, notGiven, err := c.outdated(l, s)
	switch {
	case len(changes) == 0 && notGiven > 0: // it stops them, or says so
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
		c.settings.logger.Warn("a worker lists tasks that it was not given, and is told to stop them",
			"worker", l.worker, "first", legible(string(changes[madeUp].GetTask()), maxName))
	}
	answers, failed := l.apply(ctx, changes)
	if failed != nil && notGiven > 0 {
		return nil, errors.Join(errNotGiven, failed)
	} else if failed != nil {
		return nil, failed
	}
	for i, answer := range answers {
		switch task := string(changes[i].GetTask()); {
		case answer != nil: // one will do
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

// maxForeign is how many tasks a worker may list that are not expected, and that it was
// not given: a term interns and stops each of them.
const maxForeign = 4096

// outdated returns the changes for tasks whose content is older than it should be,
// how many tasks the worker was not given, and what is wrong with those that cannot be
// sent. A worker that shows no receipt for a task gets no content of it: it could have
// made the task up. It is told to stop the task, and the next term gives the task to
// some worker again.
func (c *Communicator) outdated(l *link, s *snapshot) (changes []*orchestratorv1.Change, notGiven int, err error) {
	length, full, foreign := 0, false, 0
	for i := range s.tasks {
		t := &s.tasks[i]
		content, version, ok := c.settings.contents.Content(t.Name)
		given := t.given || l.assigned == nil
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
	if foreign > maxForeign {
		return nil, foreign, fmt.Errorf("it lists %d tasks that are not expected: at most %d", foreign, maxForeign)
	}
	return changes, notGiven, err
}
