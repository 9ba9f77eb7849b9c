package manager

// How a member reports completed tasks, until the manager has answered.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/loglimit"
	"github.com/f8949c05/orchestrator/worker"
)

// completion is a task that has completed a version of its content, or has failed.
type completion struct {
	task    string
	version int64
	receipt string
	failure *orchestratorv1.Failure // nil: completed
}

// overrides reports whether the manager must learn of c after another completion of
// the same task: c is of newer content, or reports success after a failure.
func (c completion) overrides(other completion) bool {
	return c.version > other.version || c.version == other.version && c.failure == nil && other.failure != nil
}

// completions holds the completions that the manager must still learn. It does no
// I/O.
//
// A recorded completion is owed until the manager has answered. This holds even if
// the worker has dropped the task since, because the lease was lost or the task was
// removed: the work was done.
type completions struct {
	owed   []completion          // each task once
	latest map[string]completion // the entries of owed, by task
	told   map[string]completion // answered, of the tasks that the worker still has
}

// newCompletions returns the completions in the record of a predecessor.
func newCompletions(before []worker.TaskRecord[string]) *completions {
	c := &completions{latest: make(map[string]completion), told: make(map[string]completion)}
	for _, t := range before {
		switch {
		case t.Completed:
			c.owe(completion{task: t.Task, version: t.Version, receipt: t.Receipt})
		case t.Failed:
			failure := wire.FailureOf(errors.New(t.Err), max(t.Attempts, 1), time.Time{}, time.Time{}, wire.MaxErrorText)
			c.owe(completion{t.Task, t.Version, t.Receipt, failure})
		}
	}
	return c
}

// look records the completions in the worker's status.
func (c *completions) look(tasks []worker.TaskStatus[string]) {
	still := make(map[string]completion, len(c.told))
	for _, t := range tasks {
		if t.State != worker.Completed && t.State != worker.Failed {
			continue
		}
		done := completion{task: t.Task, version: t.Version, receipt: t.Receipt}
		if t.State == worker.Failed {
			done.failure = wire.FailureOf(t.Err, max(t.Attempts, 1), time.Time{}, time.Time{}, wire.MaxErrorText)
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
	if identity.CheckName("task", done.task) != nil {
		return // no manager can have such a task
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

// The limits of one call, far below those of a message.
const (
	mostCompletions     = wire.MaxCompletions
	mostCompletionBytes = 128 << 10
)

// batch returns the completions to report next. The caller owns the slice.
func (c *completions) batch() []completion {
	size := 0
	for i, done := range c.owed {
		size += len(done.task) + len(done.receipt) + len(done.failure.GetError()) + 32 // for the rest of the message
		if i == mostCompletions || i > 0 && size > mostCompletionBytes {
			return slices.Clone(c.owed[:i])
		}
	}
	return slices.Clone(c.owed)
}

// answered processes the answers to the batch that was returned last. More
// completions may have been added since. It reports whether every completion has an
// answer; those without one are reported again, after the others.
func (c *completions) answered(batch []completion, outcomes []orchestratorv1.CompletionOutcome) (all bool) {
	rest := make([]completion, 0, len(c.owed))
	rest = append(rest, c.owed[len(batch):]...)
	all = true
	for i, done := range batch {
		answer := i < len(outcomes) && outcomes[i] != orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_UNSPECIFIED
		all = all && answer
		if now := c.owed[i]; !answer || now != done { // a newer completion of the task is still owed
			rest = append(rest, now)
			continue
		}
		delete(c.latest, done.task)
		c.told[done.task] = done
	}
	c.owed = rest
	return all
}

// completionReporter reports a worker's completions to its manager.
type completionReporter struct {
	worker  *worker.Worker[string]
	name    string
	log     *slog.Logger
	owed    *completions
	manager orchestratorv1.ManagerClient
	limit   loglimit.Limiter
}

func newCompletionReporter(w *worker.Worker[string], name string, log *slog.Logger, manager orchestratorv1.ManagerClient) *completionReporter {
	return &completionReporter{worker: w, name: name, log: log, owed: newCompletions(w.Previous()), manager: manager}
}

// reportTimeout is how long the manager may take to answer.
const reportTimeout = 5 * time.Second

// lookEvery is the pause between two looks at a busy worker.
const lookEvery = 50 * time.Millisecond

// run reports completions until ctx ends.
func (r *completionReporter) run(ctx context.Context) {
	retry, failures := backoff.New(), 0
	for ctx.Err() == nil {
		_, changed := r.worker.Changes() // before Status, so that no later change is missed
		r.owed.look(r.worker.Status())
		if err := r.report(ctx); err != nil {
			failures++
			if ctx.Err() == nil {
				warn(r.log, &r.limit, "completions not reported, will retry", err, "worker", r.name)
			}
			paused, cancel := context.WithTimeout(ctx, retry.After(failures, rand.Float64()))
			r.watch(paused)
			cancel()
			continue
		}
		failures = 0
		if len(r.owed.owed) > 0 {
			continue
		}
		r.limit.Reset()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		backoff.Sleep(ctx, lookEvery)
	}
}

// watch records completions until ctx ends. While the manager does not answer, the
// worker may lose its lease and drop completed tasks.
func (r *completionReporter) watch(ctx context.Context) {
	for ctx.Err() == nil {
		_, changed := r.worker.Changes() // before Status, so that no later change is missed
		r.owed.look(r.worker.Status())
		select {
		case <-changed:
		case <-ctx.Done():
		}
		backoff.Sleep(ctx, lookEvery)
	}
}

// report reports one batch, if any completion is owed.
func (r *completionReporter) report(ctx context.Context) error {
	batch := r.owed.batch()
	if len(batch) == 0 {
		return nil
	}
	req := &orchestratorv1.CompleteRequest{Worker: []byte(r.name)}
	for _, done := range batch {
		req.Completions = append(req.Completions, &orchestratorv1.Completion{
			Task: []byte(done.task), ContentVersion: done.version, Receipt: []byte(done.receipt), Failure: done.failure,
		})
	}
	var resp *orchestratorv1.CompleteResponse
	var err error
	answered, over := context.WithCancel(context.WithoutCancel(ctx)) // lives until the call has returned
	go func() {
		defer over()
		ctx, cancel := context.WithTimeout(ctx, reportTimeout)
		defer cancel()
		resp, err = r.manager.Complete(ctx, req)
	}()
	r.watch(answered)
	if err != nil {
		return fmt.Errorf("complete: %w", wire.Readable(err))
	}
	for i, outcome := range resp.GetOutcomes() {
		if i < len(batch) {
			level := slog.LevelDebug
			if outcome == orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_REFUSED {
				level = slog.LevelWarn // the task will run again
			}
			r.log.Log(ctx, level, "completion answered", "worker", r.name, "task", batch[i].task, "version", batch[i].version, "outcome", outcome)
		}
	}
	if !r.owed.answered(batch, resp.GetOutcomes()) {
		return fmt.Errorf("complete: some of %d completions have no answer", len(batch))
	}
	return nil
}

// finish reports the remaining completions, for at most a second. The tasks have
// stopped, and the worker still has them. run must have returned.
func (r *completionReporter) finish(ctx context.Context) {
	r.owed.look(r.worker.Status())
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	retry := backoff.New()
	for len(r.owed.owed) > 0 {
		err := r.report(ctx)
		// The last call of run may still be under way at the manager, which then refuses
		// another one.
		if err != nil && (status.Code(err) != codes.Unavailable || !retry.Wait(ctx)) {
			r.log.Warn("completions not reported, tasks may run again", "worker", r.name,
				"tasks", len(r.owed.owed), "err", err)
			return
		}
	}
}
