package orchestrator

import (
	"encoding/json"
	"time"
)

// Plan lists what a term decided, with the outcomes once the term has ended. Each term
// makes a new one, and never changes it afterwards; its slices are the
// reader's to read, not to change. It marshals to JSON, and its String is a
// table for people.
type Plan[W, T comparable] struct {
	// Stats says how the term went in figures; its Term is the identity.
	Stats TermStats `json:"stats"`
	// Changes holds every start, stop and move, in a fixed order.
	Changes []Change[W, T] `json:"changes"`
	// Waiting holds every instance that is wanted but has no place on an
	// answering worker, and every copy that a draining worker cannot hand on,
	// each with the reason.
	Waiting []Waiting[W, T] `json:"waiting"`
	// Paused holds what the term leaves alone because starts or stops failed:
	// workers, tasks, a task on a worker, or all moves.
	Paused []Pause[W, T] `json:"paused"`
	// Workers is what each worker ran when the term began and was to run when
	// it is over, in the order they were added.
	Workers []WorkerPlan[W] `json:"workers"`
}

// WorkerPlan is a worker's row in a [Plan].
type WorkerPlan[W comparable] struct {
	Name W `json:"name"`
	// State is how the term saw the worker. Late: it answers, but had not done so
	// when the term went on. Draining: it ends without tasks. Quarantined: it gets
	// no tasks, because it failed to start some that other workers started.
	State       State `json:"state"`
	Late        bool  `json:"late,omitempty"`
	Draining    bool  `json:"draining,omitempty"`
	Quarantined bool  `json:"quarantined,omitempty"`
	// Before and After count its tasks.
	Before int `json:"before"`
	After  int `json:"after"`
}

// Change is one start, stop or move of an instance.
type Change[W, T comparable] struct {
	Kind ChangeKind
	Task T
	// From is where it stops: the zero value in a start.
	From W
	// To is where it starts: the zero value in a stop.
	To W
	// Outcome says how it ended.
	Outcome Outcome
	// Err is why it did not succeed; nil where it did, or was only planned.
	Err error
}

// MarshalJSON leaves out the end that a start or a stop does not have, and
// writes Err as its text.
func (c Change[W, T]) MarshalJSON() ([]byte, error) {
	out := struct {
		Op      ChangeOp `json:"op"`
		Reason  Reason   `json:"reason"`
		Task    T        `json:"task"`
		From    *W       `json:"from,omitempty"`
		To      *W       `json:"to,omitempty"`
		Outcome Outcome  `json:"outcome"`
		Err     string   `json:"err,omitempty"`
	}{Op: c.Kind.Op, Reason: c.Kind.Reason, Task: c.Task, Outcome: c.Outcome, Err: errText(c.Err)}
	if c.Kind.Op != Start {
		out.From = &c.From
	}
	if c.Kind.Op != Stop {
		out.To = &c.To
	}
	return json.Marshal(out)
}

// ChangeKind is what a change does, and why.
type ChangeKind struct {
	Op     ChangeOp
	Reason Reason
}

// String returns for example "move/drain".
func (k ChangeKind) String() string { return string(k.Op) + "/" + string(k.Reason) }

// MarshalText returns what String does.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// ChangeOp is what a change does.
type ChangeOp string

// What a change does: Start has a To, Stop a From, and Move both.
const (
	Start ChangeOp = "start"
	Stop  ChangeOp = "stop"
	Move  ChangeOp = "move"
)

// Reason says why something changes or waits.
type Reason string

// The reasons of changes.
const (
	// ReasonMissing starts an instance that no worker runs.
	ReasonMissing Reason = "missing"
	// ReasonLost starts an instance whose worker was lost or removed.
	ReasonLost Reason = "lost"
	// ReasonUnexpected stops a task that is not expected.
	ReasonUnexpected Reason = "unexpected"
	// ReasonSurplus stops an instance beyond those wanted.
	ReasonSurplus Reason = "surplus"
	// ReasonRebalance moves an instance for an even spread.
	ReasonRebalance Reason = "rebalance"
	// ReasonDrain moves an instance away from a draining worker.
	ReasonDrain Reason = "drain"
)

// The reasons of waiting.
const (
	// ReasonHeld: a silent or late worker, named, may still run the instance.
	ReasonHeld Reason = "held"
	// ReasonUnheard: a worker, named, was never heard since this leader
	// started, and may run anything.
	ReasonUnheard Reason = "unheard"
	// ReasonNoWorker: no worker is open to new tasks.
	ReasonNoWorker Reason = "no open worker"
	// ReasonNoOtherWorker: every worker that could take the instance already
	// runs one of the same task.
	ReasonNoOtherWorker Reason = "no other worker"
	// ReasonPaused: the workers that could take the instance failed to before, or
	// its stop on the worker that is named failed.
	ReasonPaused Reason = "paused"
	// ReasonPinned: the draining worker that is named has pinned it; see [Pin].
	ReasonPinned Reason = "pinned"
	// ReasonLate: the instance has its place on a worker, named, that had not
	// answered when the term went on. It waits for the next term.
	ReasonLate Reason = "late"
)

// Outcome says how a change ended.
type Outcome string

// The outcomes of changes.
const (
	// OutcomePlanned: not carried out, because [Orchestrator.Plan] writes
	// nothing.
	OutcomePlanned Outcome = "planned"
	// OutcomeDry: not carried out, because of [WithDryRun].
	OutcomeDry Outcome = "dry"
	// OutcomeDone: every call was acknowledged.
	OutcomeDone Outcome = "done"
	// OutcomeFailed: refused for certain. A task that had been stopped for it
	// is missing.
	OutcomeFailed Outcome = "failed"
	// OutcomeReturned: a move whose task was stopped, could not be started at
	// its new place, and runs again where it came from.
	OutcomeReturned Outcome = "returned"
	// OutcomeUnknown: a call's answer was lost or late; the next term looks.
	OutcomeUnknown Outcome = "unknown"
	// OutcomeStopping: the stop takes its time; a later term goes on with it.
	OutcomeStopping Outcome = "stopping"
	// OutcomeSkipped: not begun in this term.
	OutcomeSkipped Outcome = "skipped"
)

// Waiting is an instance, or several of one task, without a place.
type Waiting[W, T comparable] struct {
	Task      T
	Instances int
	Reason    Reason
	// Worker is the one that a held instance may run on, that a draining one
	// stays on, or that was never heard; Named says whether there is one.
	Worker W
	Named  bool
}

// MarshalJSON leaves out the worker where none is named.
func (w Waiting[W, T]) MarshalJSON() ([]byte, error) {
	out := struct {
		Task      T      `json:"task"`
		Instances int    `json:"instances"`
		Reason    Reason `json:"reason"`
		Worker    *W     `json:"worker,omitempty"`
	}{Task: w.Task, Instances: w.Instances, Reason: w.Reason}
	if w.Named {
		out.Worker = &w.Worker
	}
	return json.Marshal(out)
}

// PauseKind is what a [Pause] holds for.
type PauseKind string

// The kinds of pauses.
const (
	// PauseWorker: the worker is quarantined. It keeps its tasks. When the pause is
	// over it may gain one.
	PauseWorker PauseKind = "worker"
	// PauseTask: the task failed to start on more than one worker, and no healthy
	// task makes room for it. Worker is the one that failed last.
	PauseTask PauseKind = "task"
	// PauseStart: the task failed to start on the worker.
	PauseStart PauseKind = "start"
	// PauseStop: the task failed to stop on the worker.
	PauseStop PauseKind = "stop"
	// PauseMoves: a move left its task stopped, so starts may fail on every worker. No
	// healthy instance moves, and when the pause is over, one alone.
	PauseMoves PauseKind = "moves"
)

// Pause is something that terms leave alone for a while, because it failed.
type Pause[W, T comparable] struct {
	Kind PauseKind
	// Worker and Task are zero if the kind has none.
	Worker W
	Task   T
	// Until is the number of the first term that tries again.
	Until uint64
	// Failures counts those in a row.
	Failures int
	// Err is the latest failure.
	Err error
}

// MarshalJSON leaves out what the kind does not have, and writes Err as its text.
func (p Pause[W, T]) MarshalJSON() ([]byte, error) {
	out := struct {
		Kind     PauseKind `json:"kind"`
		Worker   *W        `json:"worker,omitempty"`
		Task     *T        `json:"task,omitempty"`
		Until    uint64    `json:"until_term"`
		Failures int       `json:"failures"`
		Err      string    `json:"err"`
	}{Kind: p.Kind, Until: p.Until, Failures: p.Failures, Err: errText(p.Err)}
	if p.hasWorker() {
		out.Worker = &p.Worker
	}
	if p.hasTask() {
		out.Task = &p.Task
	}
	return json.Marshal(out)
}

func (p *Pause[W, T]) hasWorker() bool { return p.Kind != PauseMoves }
func (p *Pause[W, T]) hasTask() bool   { return p.Kind != PauseMoves && p.Kind != PauseWorker }

// State is how the orchestrator sees a worker.
type State uint8

// The states of a worker.
const (
	// Silent: did not answer the last List in time. It holds what it had.
	Silent State = iota
	// Answering: answered the last List.
	Answering
	// Lost: silent for longer than the grace period. It holds nothing.
	Lost
)

// String returns the state's name in lower case.
func (s State) String() string {
	switch s {
	case Answering:
		return "answering"
	case Lost:
		return "lost"
	}
	return "silent"
}

// MarshalText returns what String does.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// WorkerState is a worker as the last term left it.
type WorkerState[W, T comparable] struct {
	Name W
	// Tasks is its last answer, with the writes applied that it has acknowledged
	// since; no task twice. A lost worker has none. The slice is a copy.
	Tasks []T
	// LastTasks is what a lost worker had. It is nil for other workers.
	LastTasks []T
	State     State
	// Draining says whether it is to end empty.
	Draining bool
	// LastAnswer is when it last answered; zero if it never did.
	LastAnswer time.Time
}
