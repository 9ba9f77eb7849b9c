package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/panics"
)

// Source provides the tasks that are wanted. It calls tell with all of them, and again
// whenever they have changed, until ctx ends; then it returns. It is called from one
// goroutine, in the process that leads, once in every other candidate, and while the
// leader's Source does not answer.
//
// tell compares the answer with the list in force, which is in the table. Equal rows are
// one task. A row without a name, with a setting out of range, or of a name with different
// rows is left out of the comparison: its task stays as it was. If an answer lacks more
// than half of ten tasks or more, the missing ones stay until every answer of a whole
// minute has lacked them. tell does not keep the slice, and returns an error only after
// ctx has ended.
//
// If a Source returns before ctx has ended, or panics, it is called again after a pause. A
// Source that does not return when ctx ends is named in the log, and not waited for. An
// error of the first call that wraps ErrInvalid ends [Replica.Run].
type Source func(ctx context.Context, tell func([]Task) error) error

// Names is a Source of tasks that never change.
func Names(names ...string) Source {
	tasks := make([]Task, len(names))
	for i, name := range names {
		tasks[i].Name = name
	}
	return func(ctx context.Context, tell func([]Task) error) error {
		err := tell(tasks)
		<-ctx.Done()
		return err
	}
}

// Poll is a Source that calls f at once and then at the given interval. It returns the
// error of f, so that the replica logs it and calls the Source again after a pause. A call
// of f that lasts longer than a lease counts as a failure until it returns. If every is not
// above 0, or f is nil, Poll returns nil, which is an error of [New].
func Poll(every time.Duration, f func(context.Context) ([]Task, error)) Source {
	if every <= 0 || f == nil {
		return nil
	}
	return func(ctx context.Context, tell func([]Task) error) error {
		ticks := time.Tick(every)
		called, _ := ctx.Value(pollKey{}).(func())
		for ctx.Err() == nil {
			if called != nil {
				called()
			}
			tasks, err := f(ctx)
			if err == nil {
				err = tell(tasks)
			}
			if err != nil {
				return err
			}
			select {
			case <-ticks:
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// pollKey is the key of the function with which Poll says that a call begins.
type pollKey struct{}

var (
	errReturned = errors.New("it returned before its context ended: return when ctx ends, or use Names or Poll")
	errSlow     = errors.New("it has not answered for a lease")
)

// sourceRunner calls a Source while it is wanted.
type sourceRunner struct {
	r      *Replica
	source Source
	lease  time.Duration

	mu      sync.Mutex
	cancel  context.CancelFunc // nil: it does not run
	life    uint64             // of the present run; earlier ones change nothing
	answers uint64             // since the run began
	last    []Task
	failing time.Time // since when; zero: it is not
	failure error     // the last one
	invalid error     // that ends Run
	tried   bool      // the call at the start was answered
	told    bool      // errReturned was logged
}

// run starts the Source, or stops it.
func (s *sourceRunner) run(ctx context.Context, wanted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case wanted && s.cancel == nil:
		ctx, s.cancel = context.WithCancel(ctx)
		go s.feed(ctx, s.life)
	case !wanted && s.cancel != nil:
		s.cancel()
		s.cancel, s.answers, s.last, s.failing = nil, 0, nil, time.Time{}
		s.life++
	}
}

// feed calls the Source until ctx ends.
func (s *sourceRunner) feed(ctx context.Context, life uint64) {
	done := make(chan struct{})
	defer close(done)
	context.AfterFunc(ctx, func() {
		select {
		case <-done:
		case <-time.After(s.lease):
			s.r.log.Error("source has not returned, it must watch its context")
		}
	})
	retry := backoff.Backoff{First: 100 * time.Millisecond, Longest: s.lease}
	slow := time.AfterFunc(s.lease, func() { s.fail(errSlow, life) })
	defer slow.Stop()
	defer func() {
		if ctx.Err() == nil { // the Source has ended the goroutine
			s.fail(errReturned, life)
			time.AfterFunc(s.lease/4, func() { s.feed(ctx, life) })
		}
	}()
	for ctx.Err() == nil {
		slow.Reset(s.lease)
		began := time.Now()
		err := s.call(context.WithValue(ctx, pollKey{}, func() { slow.Reset(s.lease) }), slow, life)
		if ctx.Err() == nil {
			s.fail(err, life)
		}
		if time.Since(began) > s.lease {
			retry.Reset()
		}
		retry.Wait(ctx)
	}
}

// call calls the Source once. An answer stops slow.
func (s *sourceRunner) call(ctx context.Context, slow *time.Timer, life uint64) error {
	err := panics.Catch(func() error {
		return s.source(ctx, func(tasks []Task) error {
			slow.Stop()
			return s.tell(ctx, tasks, life)
		})
	})
	return cmp.Or(err, errReturned)
}

// tell records an answer.
func (s *sourceRunner) tell(ctx context.Context, tasks []Task, life uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if life != s.life || ctx.Err() != nil {
		return context.Canceled
	}
	s.answers++
	s.last, s.failing, s.tried = slices.Clone(tasks), time.Time{}, true
	s.r.wake()
	return nil
}

// fail records that the Source has returned, or takes too long.
func (s *sourceRunner) fail(err error, life uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if life != s.life {
		return
	}
	if s.failure = err; s.failing.IsZero() {
		s.failing = time.Now()
	}
	if !s.tried && errors.Is(err, ErrInvalid) {
		s.invalid = fmt.Errorf("source: %w", err)
	} else if !s.told || !errors.Is(err, errReturned) {
		s.r.warn("source failed, tasks stay as they are", "err", err)
	}
	s.told = s.told || errors.Is(err, errReturned)
	s.r.wake()
}

// answered reports whether the Source runs, has answered, and has not been failing for two
// leases since. Lead needs none.
func (s *sourceRunner) answered(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.s.lead || s.cancel != nil && s.answers > 0 && (s.failing.IsZero() || now.Sub(s.failing) < 2*s.lease)
}

// status returns since when the Source fails, and why; zero if it does not.
func (s *sourceRunner) status() (out SourceStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failing.IsZero() {
		out.Failing, out.Err = s.failing, s.failure.Error()
	}
	return out
}

// state returns the last answer and its number, whether the Source has answered once in this
// process, and the error that ends Run.
func (s *sourceRunner) state() (tasks []Task, n uint64, tried bool, invalid error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.answers, s.tried, s.invalid
}

// The brake: an answer that lacks more than half of a list of brakeFrom tasks or more
// deletes each of them only when every answer of brakeTime has lacked it.
const (
	brakeFrom = 10
	brakeTime = time.Minute
)

// list compares the answers of a Source with the list in force. It makes no call.
type list struct {
	bad      map[string]string // name → reason, of the last answer
	badSince time.Time         // of the first of the answers in a row that have bad rows
	// lacking has the tasks that the brake keeps, and since when every answer lacks them.
	lacking map[string]time.Time
}

// compare returns the list in force after an answer. The Generation of a task stays.
func (l *list) compare(inForce map[string]Task, answer []Task, now time.Time) map[string]Task {
	goal, lacked := l.check(answer), l.lacking
	if len(l.bad) == 0 {
		l.badSince = time.Time{}
	} else if l.badSince.IsZero() {
		l.badSince = now
	}
	var missing []string
	for name, was := range inForce {
		t, ok := goal[name]
		switch {
		case ok:
			t.Generation = was.Generation
			goal[name] = t
		case l.bad[name] != "":
			goal[name] = was
		default:
			missing = append(missing, name)
		}
	}
	l.lacking = make(map[string]time.Time)
	if len(inForce) < brakeFrom || 2*len(missing) <= len(inForce) {
		return goal
	}
	for _, name := range missing {
		since, ok := lacked[name]
		if !ok {
			since = now
		}
		if now.Sub(since) < brakeTime {
			goal[name], l.lacking[name] = inForce[name], since
		}
	}
	return goal
}

// status adds what the last answer was refused of.
func (l *list) status(out *SourceStatus) {
	out.Kept = len(l.lacking)
	for _, since := range l.lacking {
		if out.Braked.IsZero() || since.Before(out.Braked) {
			out.Braked = since
		}
	}
	if len(l.bad) > 0 {
		out.BadSince = l.badSince
	}
}

// isDue reports whether the brake ends for a task.
func (l *list) isDue(now time.Time) bool {
	for _, since := range l.lacking {
		if now.Sub(since) >= brakeTime {
			return true
		}
	}
	return false
}

// check returns the rows that count, by name, and records the others. Equal rows are one
// task. Rows of one name that differ are all bad.
func (l *list) check(answer []Task) map[string]Task {
	rows := make(map[string]Task, len(answer))
	l.bad = make(map[string]string)
	for _, t := range answer {
		t.Generation = 0
		why := t.problem()
		if was, ok := rows[t.Name]; ok && why == "" && !sameTask(was, t) {
			why = "rows of this name differ"
		}
		if why != "" {
			l.bad[t.Name] = why
		} else {
			rows[t.Name] = t
		}
	}
	maps.DeleteFunc(rows, func(name string, _ Task) bool { return l.bad[name] != "" })
	return rows
}

// problem returns why a row cannot be a task, or "".
func (t *Task) problem() string {
	switch {
	case t.Name == "":
		return "it has no name"
	case len(t.Name) > maxText:
		return fmt.Sprintf("its name has %d bytes: at most %d", len(t.Name), maxText)
	}
	if err := t.settings().Check(); err != nil {
		return err.Error()
	}
	return ""
}

// settings returns the settings for the orchestrator.
func (t *Task) settings() orchestrator.TaskSettings {
	return orchestrator.TaskSettings{
		Instances: t.Instances, Handoff: t.Handoff, Requires: t.Requires, MaxPerZone: t.MaxPerZone, Weight: t.Weight,
	}
}

func sameTask(a, b Task) bool {
	return a.Input == b.Input && a.Generation == b.Generation && a.settings().Equal(b.settings())
}
