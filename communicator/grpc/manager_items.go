package grpc

// The values of a manager's methods: tasks, completions and members.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// MaxContent is the maximum length of a task's content in bytes: 1 MiB.
const MaxContent = 1 << 20

// MaxList is the maximum length of a list that Items, Completed or Failed returns.
const MaxList = 1000

// ErrNotFound reports that no task of this name is expected, completed or failed,
// depending on the method.
var ErrNotFound = errors.New("no task of this name")

// Settings states how a task runs. The zero value is one instance, with the
// orchestrator's default handoff.
type Settings struct {
	Instances int // 0 means 1; at least 1 when returned
	Handoff   orchestrator.Handoff
}

// Item is an expected task.
type Item struct {
	Name     string // 1 to 1024 arbitrary bytes
	Content  []byte // 0 to MaxContent arbitrary bytes
	Settings Settings
	// Revision is the version of the content, higher than that of every earlier content
	// of any task. It must be 0 in Put.
	Revision int64
}

// Completion reports that a task has completed.
type Completion struct {
	Task string
	// Revision is the version of the completed content.
	Revision int64
	// Worker is the worker that reported the completion first.
	Worker string
	// At is the time of the report, by the manager's wall clock.
	At time.Time
}

// FailedTask is a task that has failed as often as its worker tries it (see
// worker.WithAttempts). It is not expected.
type FailedTask struct {
	Item
	// Worker is the worker on which the task failed, after Attempts in a row. At is
	// the time of the report, by the manager's wall clock. Err is the error of the
	// last attempt, at most 512 bytes.
	Worker   string
	At       time.Time
	Err      string
	Attempts int
}

// MemberState is the state of a member.
type MemberState struct {
	Worker
	// Address is the address at which the manager calls the worker.
	Address string
	// Lease is how long the worker stays a member without a heartbeat.
	Lease time.Duration
	// Draining reports whether the worker is drained, by its own request or by
	// [Manager.Drain].
	Draining bool
	// Heard is the time of the registration or of the last heartbeat. It is zero if
	// the member is known only from before the manager's start. As long as there is
	// such a member, no term runs.
	Heard time.Time
	// Until is when the membership ends without another heartbeat. It is zero before
	// Run.
	Until time.Time
	// Failing is the time of the first failed call since the last answered one; zero
	// if the last call was answered.
	Failing time.Time
}

// MarshalJSON returns a JSON object, with the lease as text and without zero times.
// Without this method, the promoted MarshalText of Worker would reduce it to a name.
func (m MemberState) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Name        string    `json:"name"`
		Incarnation uint64    `json:"incarnation"`
		Address     string    `json:"address"`
		Lease       string    `json:"lease"`
		Draining    bool      `json:"draining"`
		Heard       time.Time `json:"heard,omitzero"`
		Until       time.Time `json:"until,omitzero"`
		Failing     time.Time `json:"failing,omitzero"`
	}{m.Name, m.Incarnation, m.Address, m.Lease.String(), m.Draining, m.Heard, m.Until, m.Failing})
}

// whole returns the settings with their defaults.
func (s Settings) whole() Settings {
	s.Instances = max(s.Instances, 1)
	return s
}

func (s Settings) check() error {
	if s.Instances < 0 || s.Instances > math.MaxInt32 {
		return fmt.Errorf("%w: Instances is %d: must be from 0 to %d", orchestrator.ErrInvalid, s.Instances, math.MaxInt32)
	}
	if s.Handoff > orchestrator.StartThenStop {
		return fmt.Errorf("%w: Handoff is %d", orchestrator.ErrInvalid, s.Handoff)
	}
	return nil
}

func (i Item) check() error {
	if err := identity.CheckName("task", i.Name); err != nil {
		return err
	}
	if len(i.Content) > MaxContent {
		return fmt.Errorf("%w: content of %d bytes: at most %d", orchestrator.ErrInvalid, len(i.Content), MaxContent)
	}
	if i.Revision != 0 {
		return fmt.Errorf("%w: Revision is %d: must be 0, the manager sets it", orchestrator.ErrInvalid, i.Revision)
	}
	return i.Settings.check()
}
