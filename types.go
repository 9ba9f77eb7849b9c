package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"slices"
)

// Task is an expected task and its settings.
type Task[T comparable] struct {
	Name T `json:"name"`
	// Instances is the number of workers that run the task at the same time, one
	// instance each. 0 means 1, and -1 that the task is not wanted, as if it were left out.
	Instances int `json:"instances,omitempty"`
	// Handoff is the order of the two halves of a move. The zero value takes that of
	// [WithHandoff].
	Handoff Handoff `json:"handoff,omitempty"`
	// Requires lists labels that a worker must have to run the task; a worker must not have
	// a label that is listed with a "!" before it. An instance that runs elsewhere moves.
	Requires []string `json:"requires,omitempty"`
	// MaxPerZone is the most instances in one zone. 0 spreads the instances evenly over the
	// zones, and never leaves one without a place. A negative number is no rule.
	MaxPerZone int `json:"max_per_zone,omitempty"`
	// Weight is what one instance takes, in any unit, at most 2⁴⁰. 0 is not given: the mean of
	// the weights given, or 1 without any. A weight of [Orchestrator.UpdateWeights] outranks
	// it; there 0 is the least weight.
	Weight int64 `json:"weight,omitempty"`
}

// Settings returns the settings of the task.
func (t Task[T]) Settings() TaskSettings {
	return TaskSettings{
		Instances: t.Instances, Handoff: t.Handoff, Requires: t.Requires, MaxPerZone: t.MaxPerZone, Weight: t.Weight,
	}
}

// TaskSettings holds the settings of a task without its name, for packages that store
// tasks. The zero value is one instance with the handoff of [WithHandoff].
type TaskSettings struct {
	Instances  int      `json:"instances,omitempty"` // all fields as in [Task]
	Handoff    Handoff  `json:"handoff,omitempty"`
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
}

// Check returns an error that wraps [ErrInvalid] if no task can have the settings.
func (s TaskSettings) Check() error {
	if s.Instances < -1 || s.Instances > math.MaxInt32 {
		return invalid("Instances is %d: must be between 1 and %d, 0 for 1, or -1 for a task that is not wanted", s.Instances, math.MaxInt32)
	}
	if err := s.Handoff.check(); err != nil {
		return err
	}
	if s.MaxPerZone > math.MaxInt32 {
		return invalid("MaxPerZone is %d: must be at most %d, 0 for an even spread, or negative for no rule", s.MaxPerZone, math.MaxInt32)
	}
	if err := checkWeight(s.Weight); err != nil {
		return err
	}
	return checkLabels("Requires", s.Requires, true)
}

// Normalized returns the same settings with 1 for Instances of 0, Requires in order and
// without repetitions, and -1 for a negative MaxPerZone. Equal settings are then equal
// field by field. It does not change the slice.
func (s TaskSettings) Normalized() TaskSettings {
	s.Instances, s.MaxPerZone, s.Requires = cmp.Or(s.Instances, 1), max(s.MaxPerZone, -1), normalizedLabels(s.Requires)
	return s
}

// Equal reports whether two settings mean the same.
func (s TaskSettings) Equal(other TaskSettings) bool {
	s, other = s.Normalized(), other.Normalized()
	return s.Instances == other.Instances && s.Handoff == other.Handoff && s.MaxPerZone == other.MaxPerZone &&
		s.Weight == other.Weight && slices.Equal(s.Requires, other.Requires)
}

// MarshalJSON returns an object with the settings that differ from the default, such
// as {"instances":2,"handoff":"start then stop"}.
func (s TaskSettings) MarshalJSON() ([]byte, error) {
	if err := s.Check(); err != nil {
		return nil, err
	}
	type plain TaskSettings
	if s.Instances == 1 {
		s.Instances = 0
	}
	return json.Marshal(plain(s))
}

// UnmarshalJSON reads such an object. It ignores unknown fields and normalizes the
// settings. An "instances" of 0 that is written out counts as -1. If it fails, s is unchanged.
func (s *TaskSettings) UnmarshalJSON(data []byte) error {
	type plain TaskSettings
	in := plain{Instances: 1}
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	in.Instances = cmp.Or(in.Instances, -1)
	if err := TaskSettings(in).Check(); err != nil {
		return err
	}
	*s = TaskSettings(in).Normalized()
	return nil
}

// Worker is an expected worker and its settings.
type Worker[W comparable] struct {
	Name W `json:"name"`
	// Draining makes the worker's tasks move away. A worker drains if this is true or
	// after [Orchestrator.DrainWorker].
	Draining bool `json:"draining,omitempty"`
	// Zone names what fails together, such as a rack; the empty string is a zone too.
	Zone string `json:"zone,omitempty"`
	// Labels are what the worker has, such as "gpu" or "disk=ssd". A label is printable, without
	// a comma, a "!" at the beginning, or spaces at the ends; see [MaxLabels].
	Labels []string `json:"labels,omitempty"`
	// Share is the worker's part of the whole relative to the others; 0 means 1.
	Share int `json:"share,omitempty"`
	// MaxTasks is the most tasks that the worker runs; 0 means no limit.
	MaxTasks int `json:"max_tasks,omitempty"`
	// Host is what runs the worker, where each process has another Name. Its falls outlive the
	// worker: see [PauseFallen]. If it is empty, the name stands for it, and a restart in place is
	// a fall too. A worker with a Host that restarts in place has not fallen, also if the Host is
	// its name.
	Host string `json:"host,omitempty"`
}

// Settings returns the settings of the worker, except whether it drains.
func (w Worker[W]) Settings() WorkerSettings {
	return WorkerSettings{Zone: w.Zone, Labels: w.Labels, Share: w.Share, MaxTasks: w.MaxTasks, Host: w.Host}
}

// Handoff is the order of the two halves of a move.
type Handoff uint8

const (
	// HandoffDefault takes the order that [WithHandoff] sets for all tasks.
	HandoffDefault Handoff = iota
	// StopThenStart starts a task on its new worker only after its old worker has
	// acknowledged the stop. The task never runs twice. Between the two calls it does
	// not run.
	StopThenStart
	// StartThenStop stops a task on its old worker only after its new worker has
	// acknowledged the start. Between the two calls it runs twice.
	StartThenStop
)

// String returns the name of the handoff.
func (h Handoff) String() string {
	names := [...]string{HandoffDefault: "default", StopThenStart: "stop then start", StartThenStop: "start then stop"}
	if int(h) < len(names) {
		return names[h]
	}
	return fmt.Sprintf("handoff(%d)", uint8(h))
}

// MarshalText returns what String does, and an error for a value that is not one of the
// constants.
func (h Handoff) MarshalText() ([]byte, error) { return []byte(h.String()), h.check() }

// UnmarshalText reads what MarshalText writes. An empty text is [HandoffDefault].
func (h *Handoff) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = HandoffDefault
		return nil
	}
	return unmarshalText(h, "handoff", text, HandoffDefault, StopThenStart, StartThenStop)
}

func (h Handoff) check() error {
	if h > StartThenStop {
		return fmt.Errorf("%w: handoff is %d, not one of HandoffDefault, StopThenStart, StartThenStop", ErrInvalid, uint8(h))
	}
	return nil
}

// Term identifies a term by its leader's epoch and its number. It travels in the
// context of every call that the term makes, so that a worker can refuse writes of
// deposed leaders and past terms (see [Communicator], C7).
//
// Terms are ordered by epoch first, then by number. The zero Term is lower
// than every term that an [Orchestrator] runs.
type Term struct {
	// Epoch identifies the leader; a later leader has a higher epoch. See [WithEpoch].
	Epoch uint64 `json:"epoch"`
	// Number counts the leader's terms, from 1.
	Number uint64 `json:"number"`
}

// Compare returns -1 if t is lower than u, 0 if they are equal, and +1 if t is
// higher.
func (t Term) Compare(u Term) int {
	return cmp.Or(cmp.Compare(t.Epoch, u.Epoch), cmp.Compare(t.Number, u.Number))
}

// Credible reports whether a process that has seen the term known may believe that the
// leader of t exists. One made-up number would otherwise make a worker refuse every
// leader. The number of t is at most 2³². Its epoch is above that of known by at most 2⁴⁰, or
// by at most a sixteenth: epochs of package replica, and others that count from 1970, rise
// by that in three years. If known is zero it is at most [MaxEpoch].
func (t Term) Credible(known Term) bool {
	step := max(1<<40, known.Epoch/16)
	if known == (Term{}) {
		step = MaxEpoch
	}
	return t.Number <= 1<<32 && (t.Epoch <= known.Epoch || t.Epoch-known.Epoch <= step)
}

// MaxEpoch is the highest epoch for [WithEpoch].
const MaxEpoch = 1 << 62

// LogValue shows the term as a group of its epoch and its number.
func (t Term) LogValue() slog.Value {
	return slog.GroupValue(slog.Uint64("epoch", t.Epoch), slog.Uint64("number", t.Number))
}

type termKey struct{}

// ContextWithTerm returns a context that carries t. A transport calls it on the
// worker's side with the term that came over the wire.
func ContextWithTerm(ctx context.Context, t Term) context.Context {
	return context.WithValue(ctx, termKey{}, t)
}

// TermFromContext returns the term of a call. It reports false for a call without one,
// such as those under [WithDryRun]. Such a call may read, but must not raise a worker's
// fence.
func TermFromContext(ctx context.Context) (Term, bool) {
	t, ok := ctx.Value(termKey{}).(Term)
	return t, ok
}
