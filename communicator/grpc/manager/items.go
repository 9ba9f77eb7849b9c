package manager

// The values of a manager's methods: tasks, completions and members.

import (
	"encoding/json"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
)

// MaxContent is the maximum length of a task's content in bytes: 1 MiB.
const MaxContent = state.MaxContent

// MaxList is the maximum length of a list that Items, Completed or Failed returns.
const MaxList = 1000

// ErrNotFound reports that no task of this name is expected, completed or failed,
// depending on the method.
var ErrNotFound = state.ErrNotFound

// Item is an expected task.
type Item struct {
	Name    string // 1 to 1024 arbitrary bytes
	Content []byte // 0 to MaxContent arbitrary bytes
	// Settings has Instances of at least 1, or -1, when it is returned.
	Settings orchestrator.TaskSettings
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

func itemOf(i state.Item) Item { return Item(i) }

func failedOf(f state.FailedTask) FailedTask {
	return FailedTask{Item: Item(f.Item), Worker: f.Worker, At: f.At, Err: f.Err, Attempts: f.Attempts}
}

// each returns the results of f for the elements of a slice.
func each[S, T any](all []S, f func(S) T) []T {
	results := make([]T, len(all))
	for i, s := range all {
		results[i] = f(s)
	}
	return results
}

// MemberState is the state of a member.
type MemberState struct {
	communicator.WorkerID
	// Address is the address at which the manager calls the worker.
	Address string
	// Lease is how long the worker stays a member without a heartbeat.
	Lease time.Duration
	// Draining reports whether the worker is drained, by its own request or by
	// [Manager.Drain].
	Draining bool
	// Settings are those of the last registration ([WithSettings]).
	Settings orchestrator.WorkerSettings
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

// memberStateJSON is the JSON form of MemberState.
type memberStateJSON struct {
	Name        string `json:"name"`
	Incarnation uint64 `json:"incarnation"`
	Address     string `json:"address"`
	Lease       string `json:"lease"`
	Draining    bool   `json:"draining"`
	orchestrator.WorkerSettings
	Heard   time.Time `json:"heard,omitzero"`
	Until   time.Time `json:"until,omitzero"`
	Failing time.Time `json:"failing,omitzero"`
}

// MarshalJSON returns a JSON object, with the lease as text and without zero times.
// Without this method, the promoted MarshalText of WorkerID would reduce it to a name.
func (m MemberState) MarshalJSON() ([]byte, error) {
	return json.Marshal(memberStateJSON{
		m.Name, m.Incarnation, m.Address, m.Lease.String(), m.Draining, m.Settings, m.Heard, m.Until, m.Failing,
	})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *MemberState) UnmarshalJSON(data []byte) error {
	var in memberStateJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return err
	}
	lease, err := time.ParseDuration(in.Lease)
	if err != nil {
		return err
	}
	*m = MemberState{
		WorkerID: communicator.WorkerID{Name: in.Name, Incarnation: in.Incarnation}, Address: in.Address,
		Lease: lease, Draining: in.Draining, Settings: in.WorkerSettings, Heard: in.Heard, Until: in.Until, Failing: in.Failing,
	}
	return nil
}
