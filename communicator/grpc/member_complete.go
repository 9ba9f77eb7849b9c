package grpc

// What a worker has completed, told to its manager until that has answered.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// completion is a task that has done what it had to do with a content, or failed.
type completion struct {
	task    string
	version int64
	receipt string
	failure *orchestratorv1.Failure // nil: it has done what it had to
}

// overrides reports whether the manager has to hear of c also after another one of its
// task: it is of newer content, or says that the task was done after all.
func (c completion) overrides(other completion) bool {
	return c.version > other.version || c.version == other.version && c.failure == nil && other.failure != nil
}

// completions is which are owed to the manager. It has no I/O.
//
// What was noted is owed until the manager has answered, also where the worker
// has dropped the task since, for want of its lease or because it was removed:
// it was done all the same.
type completions struct {
	owed   []completion          // no task twice
	latest map[string]completion // of the tasks owed
	told   map[string]completion // what was answered, of the tasks that the worker still has
}

// newCompletions returns what a predecessor owes that has left a record.
func newCompletions(before []worker.Trace[string]) *completions {
	c := &completions{latest: make(map[string]completion), told: make(map[string]completion)}
	for _, t := range before {
		switch {
		case t.Completed:
			c.owe(completion{task: t.Task, version: t.Version, receipt: t.Receipt})
		case t.Failed:
			failure := failureOf(errors.New(t.Err), max(t.Attempts, 1), time.Time{}, longestFailure)
			c.owe(completion{t.Task, t.Version, t.Receipt, failure})
		}
	}
	return c
}

// look takes in what the worker says of its tasks.
func (c *completions) look(tasks []worker.TaskStatus[string]) {
	still := make(map[string]completion, len(c.told))
	for _, t := range tasks {
		if t.State != worker.Completed && t.State != worker.Failed {
			continue
		}
		done := completion{task: t.Task, version: t.Version, receipt: t.Receipt}
		if t.State == worker.Failed {
			done.failure = failureOf(t.Err, max(t.Attempts, 1), time.Time{}, longestFailure)
		}
		if told, ok := c.told[t.Task]; ok && told.version == t.Version && !done.overrides(told) {
			still[t.Task] = told
			continue
		}
		c.owe(done)
	}
	c.told = still
}

func (c *completions) owe(done completion) {
	if checkName("task", done.task) != nil {
		return // no manager has ever heard of it
	}
	before, ok := c.latest[done.task]
	if ok && !done.overrides(before) {
		return
	}
	c.latest[done.task] = done
	if !ok {
		c.owed = append(c.owed, done)
		return
	}
	for i := range c.owed {
		if c.owed[i].task == done.task {
			c.owed[i] = done
		}
	}
}

// How much is told in one call: far less than any message may have.
const (
	mostCompletions     = maxCompletions
	mostCompletionBytes = 128 << 10
)

// batch returns what is to be told next. It is the caller's.
func (c *completions) batch() []completion {
	size := 0
	for i, done := range c.owed {
		size += len(done.task) + len(done.receipt) + len(done.failure.GetError()) + 32 // what else is in the message
		if i == mostCompletions || i > 0 && size > mostCompletionBytes {
			return slices.Clone(c.owed[:i])
		}
	}
	return slices.Clone(c.owed)
}

// answered takes in the answers to a batch, the one returned last, since when more
// may have come to be owed. It reports whether all were answers; what was not
// answered is told again, after the others.
func (c *completions) answered(batch []completion, outcomes []orchestratorv1.CompletionOutcome) (all bool) {
	rest := make([]completion, 0, len(c.owed))
	rest = append(rest, c.owed[len(batch):]...)
	all = true
	for i, done := range batch {
		answer := i < len(outcomes) && outcomes[i] != orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNSPECIFIED
		all = all && answer
		if now := c.owed[i]; !answer || now != done { // what it completed since is yet to be told
			rest = append(rest, now)
			continue
		}
		delete(c.latest, done.task)
		c.told[done.task] = done
	}
	c.owed = rest
	return all
}

// teller tells a manager what a worker has completed.
type teller struct {
	worker  *worker.Worker[string]
	name    string
	log     *slog.Logger
	owed    *completions
	manager orchestratorv1.ManagerClient
	said    novelties
}

// tellPatience is how long a manager may take to answer.
const tellPatience = 5 * time.Second

// lookEvery is the pause between two looks at a worker on which much happens.
const lookEvery = 50 * time.Millisecond

// run tells until ctx ends.
func (t *teller) run(ctx context.Context) {
	failures := 0
	for ctx.Err() == nil {
		_, changed := t.worker.Changes() // first: what changes after it is looked at again
		t.owed.look(t.worker.Status())
		pause := lookEvery
		switch err := t.tell(ctx); {
		case err == nil && len(t.owed.owed) > 0:
			failures, pause = 0, 0
		case err == nil:
			failures = 0
			t.said.clear()
			select {
			case <-changed:
			case <-ctx.Done():
			}
		default:
			failures++
			pause = 0
			if ctx.Err() == nil && t.said.news(err) {
				t.log.Warn("completions not told, to be tried again", "worker", t.name, "err", err)
			}
			paused, cancel := context.WithTimeout(ctx, pauseAfter(failures, rand.Float64()))
			t.watch(paused)
			cancel()
		}
		pauseFor(ctx, pause)
	}
}

// watch goes on looking at the worker until ctx ends: what completes while the
// manager does not answer is dropped with the lease, if that is lost meanwhile.
func (t *teller) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := t.worker.Changes() // first: what changes after it is looked at again
		t.owed.look(t.worker.Status())
		select {
		case <-changed:
		case <-ctx.Done():
		}
		pauseFor(ctx, lookEvery)
	}
}

// tell tells one batch, if anything is owed.
func (t *teller) tell(ctx context.Context) error {
	batch := t.owed.batch()
	if len(batch) == 0 {
		return nil
	}
	req := &orchestratorv1.CompleteRequest{Worker: []byte(t.name)}
	for _, done := range batch {
		req.Completions = append(req.Completions, &orchestratorv1.Completion{
			Task: []byte(done.task), ContentVersion: done.version, Receipt: []byte(done.receipt), Failure: done.failure,
		})
	}
	var resp *orchestratorv1.CompleteResponse
	var err error
	answered, over := context.WithCancel(context.WithoutCancel(ctx)) // until the call has returned
	go func() {
		defer over()
		ctx, cancel := context.WithTimeout(ctx, tellPatience)
		defer cancel()
		resp, err = t.manager.Complete(ctx, req)
	}()
	t.watch(answered)
	if err != nil {
		return fmt.Errorf("complete: %w", readable(err))
	}
	for i, outcome := range resp.GetOutcomes() {
		if i < len(batch) {
			level := slog.LevelDebug
			if outcome == orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_REFUSED {
				level = slog.LevelWarn // it is done again
			}
			t.log.Log(ctx, level, "completion answered", "worker", t.name, "task", batch[i].task, "version", batch[i].version, "outcome", outcome)
		}
	}
	if !t.owed.answered(batch, resp.GetOutcomes()) {
		return fmt.Errorf("complete: not all of %d completions have an answer", len(batch))
	}
	return nil
}

// finish tells what is still owed, once more and for a moment only.
func (t *teller) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	for len(t.owed.owed) > 0 {
		if err := t.tell(ctx); err != nil {
			t.log.Warn("completions not told, and perhaps done again elsewhere", "worker", t.name,
				"tasks", len(t.owed.owed), "err", err)
			return
		}
	}
}

// pauseFor waits, but not longer than ctx.
func pauseFor(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
