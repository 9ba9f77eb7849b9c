package grpc

// What a manager is told, and tells: tasks, completions and members, as values.

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/f8949c05/orchestrator"
)

// MaxContent is how many bytes the content of a task may have: a mebibyte.
const MaxContent = 1 << 20

// MaxList is the most that one call of Items or Completed returns.
const MaxList = 1000

// ErrNotFound says that no task of this name is expected or, of
// [Manager.Completion], completed.
var ErrNotFound = errors.New("no task of this name")

// Settings says how a task is to run. The zero value is one instance, handed
// over as the orchestrator does by default.
type Settings struct {
	Instances int // 0 means 1; what is read is at least 1
	Handoff   orchestrator.Handoff
}

// Item is a task that is expected.
type Item struct {
	Name     string // 1 to 1024 bytes, any
	Content  []byte // 0 to MaxContent bytes, any
	Settings Settings
	// Revision is the version of the content: higher than that of every content,
	// of whatever task, before. Those who write leave it 0.
	Revision int64
}

// Completion says that a task has done what it had to do.
type Completion struct {
	Task string
	// Revision is that of the content that was worked on.
	Revision int64
	// Worker is who said so first.
	Worker string
	// At is when, by the manager's wall clock.
	At time.Time
}

// FailedTask is a task that has failed as often as its worker tries it (see
// worker.WithAttempts). It is not expected.
type FailedTask struct {
	Item
	// Worker is where it failed, at At by the manager's wall clock, after so many
	// Attempts in a row. Err is what the last one failed with, at most 512 bytes.
	Worker   string
	At       time.Time
	Err      string
	Attempts int
}

// MemberState is a worker that is a member.
type MemberState struct {
	Worker
	// Address is where it is called.
	Address string
	// Lease is how long it stays a member without a heartbeat.
	Lease time.Duration
	// Draining says that it is to end empty: because it asked for that, or because
	// somebody drained its name.
	Draining bool
	// Heard is when it registered or sent its last heartbeat. It is zero where the
	// manager knows it from before it was started only, and has not heard it
	// since; as long as there is such a member, no term is run.
	Heard time.Time
	// Until is when its membership ends unless it is heard before. It is zero
	// before Run.
	Until time.Time
	// Failing is since when no call to it has been answered; zero where the last
	// one was.
	Failing time.Time
}

// MarshalJSON makes an object of it, with the lease as text and without times that
// are zero. Its Worker's MarshalText, which is promoted, would make a name of it.
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

// whole returns the settings as they are read.
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
	if err := checkName("task", i.Name); err != nil {
		return err
	}
	if len(i.Content) > MaxContent {
		return fmt.Errorf("%w: a content of %d bytes: at most %d", orchestrator.ErrInvalid, len(i.Content), MaxContent)
	}
	if i.Revision != 0 {
		return fmt.Errorf("%w: Revision is %d: must be 0, it is given by the manager", orchestrator.ErrInvalid, i.Revision)
	}
	return i.Settings.check()
}
