package test

// Settings, changes and answers drawn from bytes, and what must hold after every term.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

// FuzzTerm reads settings, changes and answers from bytes, and checks what each term
// publishes.
func FuzzTerm(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0x00, 3, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte("\x05several workers that answer, and some that do not"))
	f.Add([]byte{0x1f, 4, 200, 1, 7, 90, 255, 3, 17, 40, 41, 42, 250, 251, 252, 253, 254, 9, 8, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<10 {
			return // nothing new, only slow
		}
		synctest.Test(t, func(t *testing.T) { newDrawn(t, data).run() })
	})
}

// FuzzOptions gives New and AddTask any values: each is refused with ErrInvalid, or
// accepted, and then a term runs.
func FuzzOptions(f *testing.F) {
	f.Add(int64(0), int64(0), int64(0), int64(0), 0, 0, 0.5, int8(0), uint64(0), 1, "t")
	f.Add(int64(-1), int64(-1), int64(-1), int64(-1), -1, -1, -0.1, int8(-1), uint64(1), -1, "")
	f.Add(int64(time.Second), int64(0), int64(0), int64(24*time.Hour), 1, 0, 1.0, int8(2), uint64(0), 3, "t")
	f.Add(int64(time.Hour)+1, int64(math.MaxInt64), int64(time.Hour)+1, int64(24*time.Hour)+1, 1, math.MaxInt, math.NaN(), int8(3), uint64(math.MaxUint64), math.MaxInt, "\xff")
	f.Fuzz(func(t *testing.T, timeout, grace, settle, pause int64, calls, moves int, loss float64, order int8, epoch uint64, instances int, name string) {
		o, err := orchestrator.New(communicator.Func[string, string]{},
			orchestrator.WithCommunicatorTimeout(time.Duration(timeout)), orchestrator.WithGracePeriod(time.Duration(grace)),
			orchestrator.WithSettle(time.Duration(settle)), orchestrator.WithConcurrency(calls), orchestrator.WithMaxMoves(moves),
			orchestrator.WithMaxLoss(loss), orchestrator.WithHandoff(orchestrator.Handoff(order)), orchestrator.WithEpoch(epoch),
			orchestrator.WithMaxPause(time.Duration(pause)), orchestrator.WithSeed(epoch))
		handoff := order >= 0 && order <= int8(orchestrator.StartThenStop)
		good := timeout > 0 && timeout <= int64(time.Hour) && grace >= 0 && settle >= 0 && settle <= int64(time.Hour) &&
			pause > 0 && pause <= int64(24*time.Hour) && epoch <= orchestrator.MaxEpoch &&
			calls >= 1 && moves >= 0 && loss >= 0 && loss <= 1 && handoff
		require.Equal(t, good, err == nil, "%v", err)
		if !good {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			return
		}
		require.NoError(t, o.AddWorker(name))
		taken := o.AddTask(name, orchestrator.WithTaskInstances(instances)) == nil
		require.Equal(t, instances >= -1 && instances <= math.MaxInt32, taken)
		err = o.UpdateTasks([]task{{Name: name, Instances: instances}})
		require.Equal(t, taken, err == nil)
		if err != nil {
			require.ErrorIs(t, err, orchestrator.ErrInvalid)
			require.Empty(t, o.ListExpectedTasks(), "all or nothing")
		}
		require.ErrorContains(t, o.NextTerm(t.Context()), "list worker") // it has no ListFunc
		plan, err := o.Plan(orchestrator.Hypothesis[string, string]{Drain: []string{name}})
		require.NoError(t, err)
		require.NotEmpty(t, plan.String())
	})
}

// FuzzPlanText gives a plan any names: its table has a line for each element, and its
// JSON is valid.
func FuzzPlanText(f *testing.F) {
	f.Add("w", "t", "an error", "missing", 3, uint8(1))
	f.Add("", "\t\n\v\f\x1b[0m", "\xff", "", 60, uint8(255))
	f.Fuzz(func(t *testing.T, worker, task, cause, reason string, n int, state uint8) {
		n = min(max(0, n), 200)
		var p plan
		for range n {
			for _, op := range []orchestrator.ChangeOp{orchestrator.Start, orchestrator.Stop, orchestrator.Move} {
				p.Changes = append(p.Changes, change{
					Kind: orchestrator.ChangeKind{Op: op, Reason: orchestrator.Reason(reason)}, Task: task, From: worker, To: worker,
					Outcome: orchestrator.OutcomeFailed, Err: errors.New(cause),
				})
			}
			p.Waiting = append(p.Waiting, waiting{Task: task, Instances: n, Worker: worker, Named: n%2 == 0})
			p.Paused = append(p.Paused, pause{Kind: orchestrator.PauseStart, Worker: worker, Task: task, Err: errors.New(cause)})
			p.Workers = append(p.Workers, orchestrator.WorkerPlan[string]{Name: worker, State: orchestrator.State(state)})
		}
		text, err := json.Marshal(p)
		require.NoError(t, err)
		require.True(t, json.Valid(text))
		table := p.String()
		require.LessOrEqual(t, len(table), 1000+50*6*4*(len(worker)*2+len(task)+len(cause)+len(reason)+100), "bounded, whatever the plan")
		if !strings.ContainsAny(worker+task+cause+reason, "\n\v\f\r") {
			rows := 0
			if n > 0 {
				rows = 4*2 + 2*min(n, 50) + min(3*n, 50) + min(n, 50)
				for _, m := range []int{3 * n, n, n, n} {
					if m > 50 {
						rows++ // … and more
					}
				}
			}
			require.Equal(t, 1+rows, strings.Count(table, "\n"), "%s", table)
		}
	})
}

var (
	drawnTasks   = names("t", 6)
	drawnWorkers = names("w", 5)
)

// drawn is a leader of workers. Its settings, its changes and the answers of the workers
// are drawn from bytes.
type drawn struct {
	t    *testing.T
	data []byte
	at   int // the next byte
	o    *orchestrator.Orchestrator[string, string]

	mu      sync.Mutex
	answers map[string][]listed // by worker: its lists since the end of the term before the last
	acked   map[string][]orchestrator.Write[string]
	maybe   map[string]map[string]sent // by worker and task: a start that may have happened
	writes  int
	reading bool // a Plan is under way, which calls no worker

	number  uint64
	initial map[string]bool // the workers that may run anything: of the first term that had any, and of the initial wait
	known   map[string]bool // the workers of the last term
	waited  bool            // the last term was in the initial wait
	began   time.Time       // when the first term began
	wait    time.Duration   // WithInitialWait
}

// listed is an answer to List. Its last tasks are pinned.
type listed struct {
	tasks []string
	pins  int
}

// sent is the time at which a write was sent.
type sent struct {
	term uint64
	at   time.Time
}

// next draws a number below n from the bytes, 0 after their end.
func (b *drawn) next(n int) int {
	if b.at >= len(b.data) {
		return 0
	}
	b.at++
	return int(b.data[b.at-1]) % n
}

// draw draws a number below n for a call, always the same for the same call.
func (b *drawn) draw(ctx context.Context, n int, call ...string) int {
	if len(b.data) == 0 {
		return 0
	}
	term, _ := orchestrator.TermFromContext(ctx)
	h := fnv.New32a()
	_, _ = fmt.Fprint(h, term.Number, call)
	return int(b.data[int(h.Sum32())%len(b.data)]) % n
}

func newDrawn(t *testing.T, data []byte) *drawn {
	b := &drawn{t: t, data: data, answers: make(map[string][]listed), acked: make(map[string][]orchestrator.Write[string]), maybe: make(map[string]map[string]sent), known: make(map[string]bool)}
	b.wait = []time.Duration{0, 0, 0, 40 * time.Second}[len(data)%4]
	var comm orchestrator.Communicator[string, string] = b
	settings := b.next(256)
	if settings&1 != 0 {
		comm = &drawnApplier{b}
	}
	opts := options{
		orchestrator.WithInitialWait(b.wait),
		orchestrator.WithConcurrency(1 + settings>>1&3),
		orchestrator.WithGracePeriod([]time.Duration{30 * time.Second, 0, orchestrator.HoldUntilRemoved, time.Second}[settings>>3&3]),
		orchestrator.WithMaxLoss([]float64{0.5, 0, 1, 0.2}[settings>>5&3]),
	}
	if settings>>7 != 0 {
		opts = append(opts, orchestrator.WithHandoff(orchestrator.StartThenStop), orchestrator.WithMaxMoves(settings>>3&3))
	}
	var err error
	b.o, err = orchestrator.New(comm, append(options{orchestrator.WithSeed(0)}, opts...)...)
	require.NoError(t, err)
	for range 1 + b.next(5) {
		require.NoError(t, b.o.AddWorker(drawnWorkers[b.next(len(drawnWorkers))]))
	}
	return b
}

func (b *drawn) run() {
	for range 12 {
		b.change()
		if b.next(8) == 7 {
			b.plan()
		}
		b.term()
	}
	time.Sleep(time.Hour) // calls that hang end
	synctest.Wait()
}

// change changes the expectations, and lets time pass.
func (b *drawn) change() {
	task, worker := drawnTasks[b.next(len(drawnTasks))], drawnWorkers[b.next(len(drawnWorkers))]
	switch b.next(9) {
	case 0, 1:
		require.NoError(b.t, b.o.AddTask(task, orchestrator.WithTaskInstances(1+b.next(4)), orchestrator.WithHandoff(orchestrator.Handoff(b.next(3)))))
	case 2:
		b.o.RemoveTask(task)
	case 3:
		require.NoError(b.t, b.o.AddWorker(worker))
	case 4:
		b.o.RemoveWorker(worker)
		delete(b.maybe, worker)
		delete(b.initial, worker)
		delete(b.known, worker)
	case 5:
		if err := b.o.DrainWorker(worker); err != nil {
			require.ErrorIs(b.t, err, orchestrator.ErrUnknownWorker)
		}
	case 6:
		_ = b.o.UndrainWorker(worker)
	case 7:
		require.NoError(b.t, b.o.UpdateTasks([]orchestrator.Task[string]{{Name: task, Instances: b.next(4)}}))
	case 8:
		require.NoError(b.t, b.o.UpdateTasks(nil))
	}
	time.Sleep(time.Duration(b.next(256)) * 250 * time.Millisecond)
}

// plan checks that Plan writes nothing.
func (b *drawn) plan() {
	b.mu.Lock()
	before := b.writes
	b.reading = true
	b.mu.Unlock()
	p, err := b.o.Plan(b.hypothesis())
	synctest.Wait()
	b.mu.Lock()
	require.Equal(b.t, before, b.writes)
	b.reading = false
	b.mu.Unlock()
	for _, c := range p.Changes {
		require.Equal(b.t, orchestrator.OutcomePlanned, c.Outcome)
	}
	b.checkText(p)
	if err != nil {
		require.True(b.t, errors.Is(err, orchestrator.ErrNoTerm) || errors.Is(err, orchestrator.ErrUnknownWorker), "%v", err)
	}
}

// hypothesis draws a hypothesis.
func (b *drawn) hypothesis() (h orchestrator.Hypothesis[string, string]) {
	task, worker := drawnTasks[b.next(len(drawnTasks))], drawnWorkers[b.next(len(drawnWorkers))]
	switch b.next(8) {
	case 1:
		h.Drain = []string{worker}
	case 2:
		h.Undrain = []string{worker}
	case 3:
		h.Silence = []string{worker}
	case 4:
		h.Lose = []string{worker}
	case 5:
		h.AddWorkers = []member{{Name: worker, Draining: b.next(2) == 1}}
	case 6:
		h.AddTasks = []orchestrator.Task[string]{{Name: task, Instances: b.next(4)}}
	case 7:
		h.RemoveTasks = []string{task}
	}
	return h
}

// term runs a term and checks its results.
func (b *drawn) term() {
	b.mu.Lock()
	for w, lists := range b.answers {
		b.answers[w] = lists[max(0, len(lists)-2):]
	}
	clear(b.acked)
	b.mu.Unlock()
	ctx := b.t.Context()
	if b.next(16) == 15 {
		short, cancel := context.WithTimeout(ctx, time.Duration(b.next(40))*time.Second)
		defer cancel()
		ctx = short
	}
	began := time.Now()
	err := b.o.NextTerm(ctx)
	require.LessOrEqual(b.t, time.Since(began), 5*timeout, "T3")
	synctest.Wait() // calls of a term that was cut short
	p := b.o.LastPlan()
	var failures []error
	if err != nil {
		term, ok := errors.AsType[*orchestrator.TermError](err)
		if !ok {
			require.True(b.t, ctx.Err() != nil || errors.Is(err, orchestrator.ErrDeposed), "%v", err)
		} else {
			failures = term.Failures
			require.NotEmpty(b.t, failures)
			require.Less(b.t, len(err.Error()), 6<<10, "T11")
		}
	}
	if ctx.Err() != nil && p.Stats.Term.Number == b.number {
		return // it did not begin
	}
	b.noteInitial()
	if !p.Stats.Cut {
		require.Greater(b.t, p.Stats.Term.Number, b.number, "T13")
		b.checkPlan(p)
		b.dropLate(failures)
		b.checkActual(p)
	}
	b.number = p.Stats.Term.Number
	b.checkText(p)
}

// dropLate drops the acknowledgements that came when the term no longer waited for them: a
// start that hung before gets a tenth of the timeout.
func (b *drawn) dropLate(failures []error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, err := range failures {
		call, ok := errors.AsType[*orchestrator.CallError[string, string]](err)
		if ok && call.Op == orchestrator.OpAdd && errors.Is(call, orchestrator.ErrSilent) {
			late := orchestrator.Write[string]{Op: call.Op, Task: call.Task}
			b.acked[call.Worker] = slices.DeleteFunc(b.acked[call.Worker], func(w orchestrator.Write[string]) bool { return w == late })
		}
	}
}

// noteInitial notes the workers of the first term that had any, and those that came after a term of
// the initial wait, and removes those that have answered since.
func (b *drawn) noteInitial() {
	states, stats := b.o.LastActual(), b.o.LastPlan().Stats
	if b.began.IsZero() {
		b.began = stats.Start
	}
	first := b.initial == nil && len(states) > 0
	if first {
		b.initial = make(map[string]bool)
	}
	for _, s := range states {
		if first || b.waited && !b.known[s.Name] {
			b.initial[s.Name] = true
		}
		b.known[s.Name] = true
		if s.State == orchestrator.Lost || !s.LastAnswer.IsZero() {
			delete(b.initial, s.Name)
		}
	}
	b.waited = stats.Start.Before(b.began.Add(b.wait))
	require.Equal(b.t, b.waited, !stats.InitialWait.IsZero())
}

// checkPlan checks a plan against the expectations.
func (b *drawn) checkPlan(p plan) {
	t, s := b.t, p.Stats
	wanted := make(map[string]int)
	for _, task := range b.o.ListExpectedTasks() {
		wanted[task.Name] = task.Instances
	}
	rows := make(map[string]orchestrator.WorkerPlan[string])
	for _, r := range p.Workers {
		rows[r.Name] = r
	}
	require.Equal(t, len(p.Workers), s.Workers.Answering+s.Workers.Silent+s.Workers.Lost)
	require.Equal(t, len(p.Changes), total(s.Changes))
	require.Equal(t, len(p.Changes), total(s.Outcomes))
	adds := 0
	to := make(map[[2]string]bool)
	for _, c := range p.Changes {
		require.NotEqual(t, orchestrator.OutcomePlanned, c.Outcome)
		require.NotEmpty(t, c.Outcome)
		require.NotEmpty(t, c.Kind.Reason, "P7")
		if c.Outcome != orchestrator.OutcomeDone {
			require.Error(t, c.Err, "%+v", c)
		}
		if c.Kind.Op != orchestrator.Start {
			require.Equal(t, orchestrator.Answering, rows[c.From].State, "T4: %+v", c)
			require.False(t, rows[c.From].Late, "T3: %+v", c)
		}
		if c.Kind.Op == orchestrator.Stop {
			require.Contains(t, []orchestrator.Reason{orchestrator.ReasonUnexpected, orchestrator.ReasonSurplus}, c.Kind.Reason)
			continue
		}
		adds++
		require.Positive(t, wanted[c.Task], "%+v", c)
		require.Equal(t, orchestrator.Answering, rows[c.To].State, "%+v", c)
		require.False(t, rows[c.To].Draining, "%+v", c)
		require.False(t, rows[c.To].Late, "T3: %+v", c)
		require.False(t, to[[2]string{c.Task, c.To}], "P1: %+v twice", c)
		to[[2]string{c.Task, c.To}] = true
	}
	require.Equal(t, adds, s.Adds)
	require.LessOrEqual(t, s.LowerBound, s.Adds, "P8")
	for _, w := range p.Waiting {
		require.Positive(t, w.Instances)
		require.Positive(t, wanted[w.Task], "%+v", w)
		require.NotEmpty(t, w.Reason)
		switch w.Reason {
		case orchestrator.ReasonHeld, orchestrator.ReasonNeverAnswered:
			require.True(t, w.Named)
			row := rows[w.Worker]
			require.True(t, row.State == orchestrator.Silent || row.Late, "%+v", w)
		}
	}
	for _, a := range p.Paused {
		require.Positive(t, a.Failures)
		require.Error(t, a.Err)
	}
}

// checkActual checks that LastActual is what the workers answered (T12), and that no task
// started that a silent worker may run (T4).
func (b *drawn) checkActual(p plan) {
	t := b.t
	b.mu.Lock()
	defer b.mu.Unlock()
	running, held := make(map[string]int), make(map[string]int)
	late := make(map[string]bool)
	for _, row := range p.Workers {
		late[row.Name] = row.Late
	}
	for _, s := range b.o.LastActual() {
		answered := s.State == orchestrator.Answering && !late[s.Name]
		waits := s.State == orchestrator.Silent || late[s.Name]
		tasks := slices.Sorted(slices.Values(s.Tasks))
		require.Len(t, slices.Compact(slices.Clone(tasks)), len(tasks), "a task twice on %s", s.Name)
		for _, task := range tasks {
			switch {
			case answered:
				running[task]++
			case waits:
				held[task]++
			}
		}
		for task, sent := range b.maybe[s.Name] {
			switch {
			case answered && sent.term < p.Stats.Term.Number,
				waits && !s.LastAnswer.Before(sent.at): // an answer that came late
				delete(b.maybe[s.Name], task)
			case waits && !slices.Contains(tasks, task):
				held[task]++
			}
		}
		if !answered {
			continue
		}
		require.True(t, slices.ContainsFunc(b.answers[s.Name], func(list listed) bool {
			return slices.Equal(tasks, apply(list.tasks, b.acked[s.Name]))
		}), "%s is seen with %v; it said %v, and acknowledged %v\n%v", s.Name, tasks, b.answers[s.Name], b.acked[s.Name], p)
	}
	clean := make(map[string]bool)
	started := make(map[string]int)
	for _, c := range p.Changes {
		if c.Outcome != orchestrator.OutcomeDone {
			clean[c.Task] = false
		} else if _, ok := clean[c.Task]; !ok {
			clean[c.Task] = true
		}
		if c.Kind.Op == orchestrator.Move {
			require.True(t, slices.ContainsFunc(b.answers[c.From], func(list listed) bool {
				return slices.Contains(list.tasks, c.Task) && !slices.Contains(list.tasks[len(list.tasks)-list.pins:], c.Task)
			}), "C8: %+v; it said %v", c, b.answers[c.From])
		}
		if c.Kind.Op == orchestrator.Start {
			require.Empty(t, b.initial, "T4: %+v, and these may run anything", c)
			require.False(t, b.waited, "T4: %+v, and workers may still register", c)
		}
		if c.Kind.Op == orchestrator.Start && c.Outcome == orchestrator.OutcomeDone {
			started[c.Task]++
		}
	}
	for _, task := range b.o.ListExpectedTasks() {
		if clean[task.Name] && started[task.Name] > 0 {
			require.LessOrEqual(t, running[task.Name]+held[task.Name], task.Instances, "T4: %s: %d run, %d held\n%v", task.Name, running[task.Name], held[task.Name], p)
		}
	}
}

// apply returns what a worker runs after an answer and acknowledged writes, in order.
func apply(list []string, writes []orchestrator.Write[string]) []string {
	runs := slices.Clone(list)
	for _, w := range writes {
		runs = slices.DeleteFunc(runs, func(task string) bool { return task == w.Task })
		if w.Op == orchestrator.OpAdd {
			runs = append(runs, w.Task)
		}
	}
	slices.Sort(runs)
	return slices.Compact(runs)
}

// checkText checks the plan's forms for people and programs.
func (b *drawn) checkText(p plan) {
	text, err := json.Marshal(p)
	require.NoError(b.t, err)
	var back struct {
		Changes, Waiting, Paused, Workers []map[string]any
	}
	require.NoError(b.t, json.Unmarshal(text, &back))
	require.Equal(b.t, []int{len(p.Changes), len(p.Waiting), len(p.Paused), len(p.Workers)},
		[]int{len(back.Changes), len(back.Waiting), len(back.Paused), len(back.Workers)})
	require.True(b.t, strings.HasSuffix(p.String(), "\n"))
}

// List implements orchestrator.Communicator.
func (b *drawn) List(ctx context.Context, worker string) ([]string, error) {
	b.mu.Lock()
	require.False(b.t, b.reading, "a Plan calls no worker")
	b.mu.Unlock()
	_, ok := orchestrator.TermFromContext(ctx)
	require.True(b.t, ok, "T13")
	if err := b.misbehave(ctx, b.draw(ctx, 64, "list", worker)); err != nil {
		return nil, err
	}
	var tasks []string
	for i := range b.draw(ctx, 9, "long", worker) {
		tasks = append(tasks, append(drawnTasks, "x", "y")[b.draw(ctx, len(drawnTasks)+2, "task", worker, fmt.Sprint(i))])
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	pins := b.draw(ctx, 4, "pins", worker)
	orchestrator.Pin(ctx, pins)
	b.answers[worker] = append(b.answers[worker], listed{tasks, min(pins, len(tasks))})
	return tasks, nil
}

// Add implements orchestrator.Communicator.
func (b *drawn) Add(ctx context.Context, worker, task string) error {
	return b.write(ctx, orchestrator.OpAdd, worker, task)
}

// Remove implements orchestrator.Communicator.
func (b *drawn) Remove(ctx context.Context, worker, task string) error {
	return b.write(ctx, orchestrator.OpRemove, worker, task)
}

func (b *drawn) write(ctx context.Context, op orchestrator.Op, worker, task string) error {
	err := b.misbehave(ctx, b.draw(ctx, 64, op.String(), worker, task))
	b.mu.Lock()
	defer b.mu.Unlock()
	b.writes++
	switch {
	case err == nil:
		b.acked[worker] = append(b.acked[worker], orchestrator.Write[string]{Op: op, Task: task})
		delete(b.maybe[worker], task)
	case op == orchestrator.OpAdd && !errors.Is(err, orchestrator.ErrRejected) && !errors.Is(err, orchestrator.ErrStopping) && !errors.Is(err, orchestrator.ErrDeposed):
		b.mayRun(ctx, worker, task)
	}
	return err
}

// mayRun notes that a start may have happened. The caller holds the lock.
func (b *drawn) mayRun(ctx context.Context, worker, task string) {
	if b.maybe[worker] == nil {
		b.maybe[worker] = make(map[string]sent)
	}
	term, _ := orchestrator.TermFromContext(ctx)
	b.maybe[worker][task] = sent{term.Number, time.Now()}
}

// misbehave delays a call, or returns its error.
func (b *drawn) misbehave(ctx context.Context, kind int) error {
	switch kind {
	case 60:
		return orchestrator.ErrDeposed
	case 61, 57:
		return orchestrator.ErrRejected
	case 62:
		return orchestrator.ErrStopping
	case 63:
		return errors.New("a\tstory\n\xff")
	case 59, 58:
		return hang(ctx)
	case 56:
		return orchestrator.ErrStale
	case 55:
		return errors.Join(orchestrator.ErrRejected, errors.New("and more"))
	case 54:
		return context.Canceled
	}
	if kind >= 40 {
		select {
		case <-time.After(time.Duration(kind-39) * 700 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// drawnApplier answers several writes, sometimes with the wrong number of answers.
type drawnApplier struct{ *drawn }

// Apply implements orchestrator.Applier.
func (b *drawnApplier) Apply(ctx context.Context, worker string, writes []orchestrator.Write[string]) []error {
	wrong := b.draw(ctx, 32, "apply", worker) == 31
	errs := make([]error, 0, len(writes))
	for _, w := range writes {
		if wrong { // says nothing about them
			if w.Op == orchestrator.OpAdd {
				b.mu.Lock()
				b.mayRun(ctx, worker, w.Task)
				b.mu.Unlock()
			}
			continue
		}
		errs = append(errs, b.write(ctx, w.Op, worker, w.Task))
	}
	if wrong {
		errs = append(errs, nil, nil)[:min(2, len(writes)+1)]
		if len(errs) == len(writes) {
			errs = append(errs, nil)
		}
	}
	return errs
}
