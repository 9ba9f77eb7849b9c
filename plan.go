package orchestrator

import (
	"cmp"
	"encoding/json"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator/internal/handover"
	"github.com/f8949c05/orchestrator/internal/term"
)

// Plan is what a term decided, with the outcomes once the term has ended. It does not
// change afterwards, and its readers must not change its slices. It marshals to JSON and
// back, with errors as text; names must do so too, which strings do if they are UTF-8.
// String returns a table.
type Plan[W, T comparable] struct {
	// Stats holds the figures of the term and its identity.
	Stats TermStats `json:"stats"`
	// Changes holds every start, stop and move, in a fixed order.
	Changes []Change[W, T] `json:"changes"`
	// Waiting holds every wanted instance that does not run on an answering worker when
	// the term ends, and every copy that a draining worker cannot hand on, each once and
	// with the reason. Starts that a plan without writes has in Changes are not in it.
	Waiting []Waiting[W, T] `json:"waiting"`
	// Paused holds what the term leaves alone because starts or stops failed: workers,
	// tasks, a task on a worker, or all moves; and workers that fell.
	Paused []Pause[W, T] `json:"paused"`
	// Holds is why moves for an even spread wait. Stats counts the moves.
	Holds []Hold `json:"holds,omitempty"`
	// Workers counts each worker's tasks before and after the plan, in the order in
	// which the workers were added.
	Workers []WorkerPlan[W] `json:"workers"`
}

// WorkerPlan is a worker's row in a [Plan].
type WorkerPlan[W comparable] struct {
	Name W `json:"name"`
	// State is the worker's state in the term. Late: it answers, but too late for this
	// term. Draining: its tasks move away. Quarantined: it receives no tasks, because
	// it failed to start some that other workers started.
	State       State `json:"state"`
	Late        bool  `json:"late,omitempty"`
	Draining    bool  `json:"draining,omitempty"`
	Quarantined bool  `json:"quarantined,omitempty"`
	// Before and After count its tasks.
	Before int `json:"before"`
	After  int `json:"after"`
	// Weight is what its tasks weigh after the plan, and Level what they should weigh. Both are
	// 0 unless the weights of tasks differ.
	Weight int64 `json:"weight,omitempty"`
	Level  int64 `json:"level,omitempty"`
	// OutOfBand is since when each term has left its weight out of its band ([WithBand]); zero if the
	// last did not. [Orchestrator.Plan] counts from the present.
	OutOfBand time.Time `json:"out_of_band,omitzero"`
	// Settings are those of the worker; a share of 0 is 1.
	Settings WorkerSettings `json:"settings,omitzero"`
}

// Change is one start, stop or move of an instance.
type Change[W, T comparable] struct {
	Kind ChangeKind
	Task T
	// From is the worker that stops the task. In a start it is the zero value.
	From W
	// To is the worker that starts the task. In a stop it is the zero value.
	To W
	// Was is the worker that had the instance before, if the reason is [ReasonLost] or
	// [ReasonVanished]; otherwise it is the zero value.
	Was W
	// Outcome is how the change ended.
	Outcome Outcome
	// Began is when its first call began, and Took how long after that its last call was
	// answered or given up. They are zero if no call was made.
	Began time.Time
	Took  time.Duration
	// Gap is how long a move left its instance stopped: from the acknowledged stop to the
	// acknowledged start, on either worker. If the term started it on neither, Gap ends
	// with the writes of the term, and the instance is missing.
	Gap time.Duration
	// Err is the cause if the change did not succeed. It is nil if the change succeeded
	// or was only planned.
	Err error
}

// changeJSON is the JSON form of Change.
type changeJSON[W, T comparable] struct {
	Op      ChangeOp `json:"op"`
	Reason  Reason   `json:"reason"`
	Task    T        `json:"task"`
	From    *W       `json:"from,omitempty"`
	To      *W       `json:"to,omitempty"`
	Was     *W       `json:"was,omitempty"`
	Outcome Outcome  `json:"outcome"`

	Began time.Time     `json:"began,omitzero"`
	Took  time.Duration `json:"took_ns,omitempty"`
	Gap   time.Duration `json:"gap_ns,omitempty"`
	Err   string        `json:"err,omitempty"`
}

// MarshalJSON omits the worker that a start or a stop does not have, and writes Err as
// its text.
func (c Change[W, T]) MarshalJSON() ([]byte, error) {
	out := changeJSON[W, T]{
		Op: c.Kind.Op, Reason: c.Kind.Reason, Task: c.Task, Outcome: c.Outcome,
		From: given(c.hasFrom(), c.From), To: given(c.hasTo(), c.To), Was: given(c.hasWas(), c.Was),
		Began: c.Began, Took: c.Took, Gap: c.Gap, Err: errText(c.Err),
	}
	return json.Marshal(out)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (c *Change[W, T]) UnmarshalJSON(data []byte) error {
	var in changeJSON[W, T]
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*c = Change[W, T]{
		Kind: ChangeKind{in.Op, in.Reason}, Task: in.Task, From: valueOf(in.From), To: valueOf(in.To), Was: valueOf(in.Was),
		Outcome: in.Outcome, Began: in.Began, Took: in.Took, Gap: in.Gap, Err: textError(in.Err),
	}
	return nil
}

func (c *Change[W, T]) hasFrom() bool { return c.Kind.Op != Start }
func (c *Change[W, T]) hasTo() bool   { return c.Kind.Op != Stop }

// hasWas reports whether Was names a worker.
func (c *Change[W, T]) hasWas() bool {
	return c.Kind.Reason == ReasonLost || c.Kind.Reason == ReasonVanished
}

// ChangeKind is the operation and the reason of a change.
type ChangeKind struct {
	Op     ChangeOp
	Reason Reason
}

// String returns for example "move/drain".
func (k ChangeKind) String() string { return string(k.Op) + "/" + string(k.Reason) }

// MarshalText returns what String does.
func (k ChangeKind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (k *ChangeKind) UnmarshalText(text []byte) error {
	op, reason, ok := strings.Cut(string(text), "/")
	if !ok {
		return invalid("the kind of a change is %q: must be an operation, a slash and a reason", text)
	}
	*k = ChangeKind{ChangeOp(op), Reason(reason)}
	return nil
}

// ChangeOp is the operation of a change.
type ChangeOp string

// The operations: Start has a To, Stop a From, and Move both.
const (
	Start ChangeOp = "start"
	Stop  ChangeOp = "stop"
	Move  ChangeOp = "move"
)

// Reason is why a change is made or an instance waits.
type Reason string

// The reasons of changes.
const (
	// ReasonMissing starts an instance that no worker runs.
	ReasonMissing = Reason(term.ReasonMissing)
	// ReasonLost starts an instance whose worker was declared lost or removed.
	ReasonLost = Reason(term.ReasonLost)
	// ReasonVanished starts an instance whose worker answers and does not list it any more,
	// although no stop was sent. The worker may have restarted.
	ReasonVanished = Reason(term.ReasonVanished)
	// ReasonUnexpected stops a task that is not expected.
	ReasonUnexpected = Reason(term.ReasonUnexpected)
	// ReasonSurplus stops an instance beyond those wanted.
	ReasonSurplus = Reason(term.ReasonSurplus)
	// ReasonRebalance moves an instance for an even spread.
	ReasonRebalance = Reason(term.ReasonRebalance)
	// ReasonDrain moves an instance away from a draining worker.
	ReasonDrain = Reason(term.ReasonDrain)
	// ReasonRequires moves an instance away from a worker without the labels that the task
	// requires.
	ReasonRequires = Reason(term.ReasonRequires)
	// ReasonZone moves an instance out of a zone with more than the task's MaxPerZone, or than
	// an even spread over the zones.
	ReasonZone = Reason(term.ReasonZone)
	// ReasonLimit moves an instance away from a worker with more than its MaxTasks.
	ReasonLimit = Reason(term.ReasonLimit)
	// ReasonRoom moves an instance to make room for one that is missing, or leaves a draining
	// worker, or one where a rule forbids it.
	ReasonRoom = Reason(term.ReasonRoom)
)

// The reasons of waiting. ReasonRequires, ReasonZone and ReasonLimit are reasons of waiting too:
// the named worker keeps an instance that breaks the rule, because it has no other place.
const (
	// ReasonHeld: the named worker is silent or late and may still run the instance.
	ReasonHeld = Reason(term.ReasonHeld)
	// ReasonNeverAnswered: the named worker has not answered since this leader started, and
	// may run any task.
	ReasonNeverAnswered = Reason(term.ReasonNeverAnswered)
	// ReasonInitialWait: a worker that has not registered yet may run the instance; see
	// [WithInitialWait].
	ReasonInitialWait = Reason(term.ReasonInitialWait)
	// ReasonNoWorker: no worker is open to new tasks.
	ReasonNoWorker = Reason(term.ReasonNoWorker)
	// ReasonNoOtherWorker: every worker that could take the instance already
	// runs one of the same task.
	ReasonNoOtherWorker = Reason(term.ReasonNoOtherWorker)
	// ReasonPaused: the workers that could take the instance failed to start it before, or its
	// stop on the named worker failed. In [Snapshot.Explain] the worker may have fallen too
	// ([PauseFallen]).
	ReasonPaused = Reason(term.ReasonPaused)
	// ReasonPinned: the named worker is draining and has pinned the task; see [Pin].
	ReasonPinned = Reason(term.ReasonPinned)
	// ReasonSkipped: the term did not begin the start on the named worker; the change has
	// the cause.
	ReasonSkipped Reason = "skipped"
	// ReasonNoPlace: labels, zones or limits leave no worker for the instance. The causes say
	// which. If a worker is named, it drains and keeps the instance.
	ReasonNoPlace = Reason(term.ReasonNoPlace)
	// ReasonEvictionHeld: the named worker does not have the labels that the task requires,
	// and keeps the instance for now, because changed labels would evict too many; see
	// [WithMaxLoss].
	ReasonEvictionHeld = Reason(term.ReasonEvictionHeld)
	// ReasonObserved: the leader starts the instance, or has the reason why it does not. Only
	// terms of [Orchestrator.Observe] have this reason.
	ReasonObserved Reason = "observed"
	// ReasonFailed: the named worker did not acknowledge the start; the change has the
	// error.
	ReasonFailed Reason = "failed"
)

// Outcome is how a change ended.
type Outcome string

// The outcomes of changes.
const (
	// OutcomePlanned: not carried out, because [Orchestrator.Plan] does not write.
	OutcomePlanned Outcome = "planned"
	// OutcomeDry: not carried out, because of [WithDryRun].
	OutcomeDry Outcome = "dry"
	// OutcomeDone: every call was acknowledged.
	OutcomeDone = Outcome(handover.OutDone)
	// OutcomeFailed: certainly not done. A task that was stopped for it is missing.
	OutcomeFailed = Outcome(handover.OutFailed)
	// OutcomeReturned: the task of a move was stopped, could not be started on its new
	// worker, and runs again on its old one.
	OutcomeReturned = Outcome(handover.OutReturned)
	// OutcomeUnknown: the answer to a call was lost or late; the next term checks.
	OutcomeUnknown = Outcome(handover.OutUnknown)
	// OutcomeStopping: the stop is under way and outlasts the term; a later term
	// continues it.
	OutcomeStopping = Outcome(handover.OutStopping)
	// OutcomeSkipped: not begun in this term.
	OutcomeSkipped = Outcome(handover.OutSkipped)
)

// Waiting is one or more instances of a task without a place.
type Waiting[W, T comparable] struct {
	Task      T
	Instances int
	Reason    Reason
	// Worker is the worker that the reason names. Named reports whether there is one.
	Worker W
	Named  bool
	// Causes says why no worker takes the instances. It is nil if no worker and no task has
	// rules, or if the instances have a place.
	Causes *Causes
}

// WaitingKind is what the reason of a [Waiting] means for its instances.
type WaitingKind string

// The kinds of waiting. The instances of the kinds unplaced and failing add up to the
// missing ones of [InstanceStats], unless the term ended before it could plan or writes
// nothing ([WithDryRun]).
const (
	// WaitingHeld: a silent or late worker may run the instance.
	WaitingHeld WaitingKind = "held"
	// WaitingStaying: the instance runs on a draining worker, or on one that it should leave
	// by a rule.
	WaitingStaying WaitingKind = "staying"
	// WaitingUnplaced: the instance is missing, and the term did not try to start it.
	WaitingUnplaced WaitingKind = "unplaced"
	// WaitingFailing: the instance is missing, because starts fail.
	WaitingFailing WaitingKind = "failing"
)

// Kind returns the kind, which follows from the reason.
func (w *Waiting[W, T]) Kind() WaitingKind {
	switch w.Reason {
	case ReasonHeld:
		return WaitingHeld
	case ReasonFailed:
		return WaitingFailing
	case ReasonNeverAnswered, ReasonInitialWait, ReasonSkipped:
		return WaitingUnplaced
	}
	switch {
	case w.Named:
		return WaitingStaying
	case w.Reason == ReasonPaused:
		return WaitingFailing
	}
	return WaitingUnplaced
}

// waitingJSON is the JSON form of Waiting.
type waitingJSON[W, T comparable] struct {
	Task      T           `json:"task"`
	Instances int         `json:"instances"`
	Kind      WaitingKind `json:"kind"` // for readers in other languages; not read
	Reason    Reason      `json:"reason"`
	Worker    *W          `json:"worker,omitempty"`
	Causes    *Causes     `json:"causes,omitempty"`
}

// MarshalJSON omits the worker if none is named.
func (w Waiting[W, T]) MarshalJSON() ([]byte, error) {
	return json.Marshal(waitingJSON[W, T]{
		Task: w.Task, Instances: w.Instances, Kind: w.Kind(), Reason: w.Reason, Worker: given(w.Named, w.Worker), Causes: w.Causes,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (w *Waiting[W, T]) UnmarshalJSON(data []byte) error {
	var in waitingJSON[W, T]
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*w = Waiting[W, T]{
		Task: in.Task, Instances: in.Instances, Reason: in.Reason,
		Worker: valueOf(in.Worker), Named: in.Worker != nil, Causes: in.Causes,
	}
	return nil
}

// PauseKind is what a [Pause] applies to.
type PauseKind string

// The kinds of pauses.
const (
	// PauseWorker: the worker is quarantined. It keeps its tasks. After the pause it
	// may gain one.
	PauseWorker = PauseKind(term.PauseWorker)
	// PauseTask: the task failed to start on more than one worker, and no healthy
	// task makes room for it. Worker is the one on which it failed last.
	PauseTask = PauseKind(term.PauseTask)
	// PauseStart: the task failed to start on the worker, or has asked to leave it.
	PauseStart = PauseKind(term.PauseStart)
	// PauseStop: the task failed to stop on the worker.
	PauseStop = PauseKind(term.PauseStop)
	// PauseMoves: a move left its task stopped, so starts may fail on every worker. No
	// healthy instance moves, and after the pause only one.
	PauseMoves = PauseKind(term.PauseMoves)
	// PauseFallen: the worker's host fell again within ten minutes. A fall is a worker that is
	// lost, removed with tasks while it does not drain, undrained, or, without a Host, back with
	// none of its tasks. Workers of a host that fall together count once.
	//
	// The worker keeps its tasks. It gains only what no other worker may run, of what is missing
	// or on draining workers. The pause is 30 s from its return, twice as long after each further
	// fall, and at most [WithMaxPause]. It ends at the latest ten minutes after the last fall.
	// Falls are forgotten then, or when the host has answered for twice the pause. If more than
	// half of the open workers would pause, none does.
	PauseFallen = PauseKind(term.PauseFallen)
)

// Pause is a worker, a task or a kind of write that terms leave alone for a while,
// because it failed or fell.
type Pause[W, T comparable] struct {
	Kind PauseKind
	// Worker and Task are the zero value if the kind has none.
	Worker W
	Task   T
	// Until is the number of the first term that tries again; 0 for PauseFallen, of which Ends
	// is the end.
	Until uint64
	Ends  time.Time
	// Failures counts the failures in a row, or the falls.
	Failures int
	// Err is the last failure, or says how often the worker fell.
	Err error
}

// pauseJSON is the JSON form of Pause.
type pauseJSON[W, T comparable] struct {
	Kind     PauseKind `json:"kind"`
	Worker   *W        `json:"worker,omitempty"`
	Task     *T        `json:"task,omitempty"`
	Until    uint64    `json:"until_term"`
	Ends     time.Time `json:"ends,omitzero"`
	Failures int       `json:"failures"`
	Err      string    `json:"err"`
}

// MarshalJSON omits the worker or task that the kind does not have, and writes Err as its
// text.
func (p Pause[W, T]) MarshalJSON() ([]byte, error) {
	return json.Marshal(pauseJSON[W, T]{
		Kind: p.Kind, Worker: given(p.hasWorker(), p.Worker), Task: given(p.hasTask(), p.Task),
		Until: p.Until, Ends: p.Ends, Failures: p.Failures, Err: errText(p.Err),
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Pause[W, T]) UnmarshalJSON(data []byte) error {
	var in pauseJSON[W, T]
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	*p = Pause[W, T]{
		Kind: in.Kind, Worker: valueOf(in.Worker), Task: valueOf(in.Task),
		Until: in.Until, Ends: in.Ends, Failures: in.Failures, Err: textError(in.Err),
	}
	return nil
}

// given returns a pointer to v, or nil if there is no value.
func given[V any](is bool, v V) *V {
	if !is {
		return nil
	}
	return &v
}

// valueOf returns what p points to, or the zero value if p is nil.
func valueOf[V any](p *V) V { return *cmp.Or(p, new(V)) }

func (p *Pause[W, T]) hasWorker() bool { return p.Kind != PauseMoves }
func (p *Pause[W, T]) hasTask() bool {
	return p.Kind == PauseTask || p.Kind == PauseStart || p.Kind == PauseStop
}

// State is a worker's state in a term.
type State uint8

// The states of a worker.
const (
	// Silent: it did not answer the last List in time. It keeps its tasks.
	Silent State = State(term.Silent)
	// Answering: it answered the last List.
	Answering State = State(term.Answering)
	// Lost: it was silent for longer than the grace period. Its tasks start elsewhere.
	Lost State = State(term.Lost)
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

// UnmarshalText reads what MarshalText writes.
func (s *State) UnmarshalText(text []byte) error {
	return unmarshalText(s, "the state of a worker", text, Silent, Answering, Lost)
}
