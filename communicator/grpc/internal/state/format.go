package state

// The format of records in a Store. A key consists of a kind and a name:
//
//	task/NAME       its settings as JSON, a line break, its content
//	done/NAME       a completion as JSON
//	failed/NAME     settings and failure as JSON, a line break, the content
//	member/NAME     a membership as JSON
//	drain/NAME      {}
//	epoch           of the manager that runs, or ran last
//	revision        the highest version of any content
//	key             32 random bytes, the secret that receipts are made with
//
// Names are not escaped. Managers ignore JSON fields that they do not know, so later
// versions may add some.

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
)

// The kinds of keys.
const (
	keyEpoch    = "epoch"
	keyRevision = "revision"
	keyReceipts = "key"
	keyTask     = "task/"
	keyDone     = "done/"
	keyFailed   = "failed/"
	keyMember   = "member/"
	keyDrain    = "drain/"
)

type taskJSON struct {
	Revision   int64    `json:"revision"`
	Instances  int      `json:"instances"`
	Handoff    uint8    `json:"handoff,omitempty"`
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
}

type failedJSON struct {
	taskJSON
	Worker   []byte    `json:"worker"`
	At       time.Time `json:"at"`
	Err      string    `json:"err"`
	Attempts int       `json:"attempts"`
}

type completionJSON struct {
	Revision int64     `json:"revision"`
	Worker   []byte    `json:"worker"`
	At       time.Time `json:"at"`
	Content  string    `json:"content"` // its SHA-256
}

type membershipJSON struct {
	Incarnation uint64        `json:"incarnation"`
	Address     string        `json:"address"`
	Lease       time.Duration `json:"lease"` // in nanoseconds
	Draining    bool          `json:"draining,omitempty"`
	orchestrator.WorkerSettings
}

// Encode returns the keys and values of a change.
func (r *Records) Encode() map[string][]byte {
	values := make(map[string][]byte, 3+len(r.tasks)+len(r.done)+len(r.failed)+len(r.Members)+len(r.drains))
	if r.Epoch != 0 {
		values[keyEpoch] = strconv.AppendUint(nil, r.Epoch, 10)
	}
	if r.Revision != 0 {
		values[keyRevision] = strconv.AppendInt(nil, r.Revision, 10)
	}
	if r.Key != nil {
		values[keyReceipts] = r.Key
	}
	encodeAll(values, keyTask, r.tasks, func(t *Task) []byte { return withContent(headOf(t.Item), t.Content) })
	encodeAll(values, keyFailed, r.failed, func(f *failedTask) []byte {
		return withContent(failedJSON{headOf(f.Item), []byte(f.Worker), f.At, f.Err, f.Attempts}, f.Content)
	})
	encodeAll(values, keyDone, r.done, func(d *finished) []byte {
		return encodeJSON(completionJSON{d.Revision, []byte(d.Worker), d.At, hex.EncodeToString(d.sum[:])})
	})
	encodeAll(values, keyMember, r.Members, func(m *Membership) []byte {
		return encodeJSON(membershipJSON{m.Incarnation, m.Address, m.Lease, m.Draining, m.Settings})
	})
	for name, drained := range r.drains {
		values[keyDrain+name] = nil
		if drained {
			values[keyDrain+name] = []byte("{}")
		}
	}
	return values
}

// encodeAll encodes the values of one kind. Those that are nil are deleted.
func encodeAll[V any](values map[string][]byte, kind string, all map[string]*V, encode func(*V) []byte) {
	for name, v := range all {
		values[kind+name] = nil
		if v != nil {
			values[kind+name] = encode(v)
		}
	}
}

func headOf(i Item) taskJSON {
	s := i.Settings
	return taskJSON{i.Revision, s.Instances, uint8(s.Handoff), s.Requires, s.MaxPerZone, s.Weight}
}

func withContent(head any, content []byte) []byte {
	return append(append(encodeJSON(head), '\n'), content...)
}

func encodeJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) //nolint:forbidigo // cannot fail for a struct of numbers, strings and bytes
	}
	return b
}

// DecodeAll returns the records of the keys and values of a store.
func DecodeAll(values map[string][]byte) (Records, error) {
	r := newRecords()
	for key, value := range values {
		if err := r.decode(key, value); err != nil {
			return Records{}, fmt.Errorf("key %q: %w", key, err)
		}
	}
	return r, nil
}

// decode decodes one key and its value.
func (r *Records) decode(key string, value []byte) (err error) {
	kind, name, named := strings.Cut(key, "/")
	if named {
		kind += "/"
	}
	if named && name == "" {
		return errNotOurs
	}
	switch kind {
	case keyEpoch:
		r.Epoch, err = strconv.ParseUint(string(value), 10, 64)
	case keyRevision:
		r.Revision, err = strconv.ParseInt(string(value), 10, 64)
	case keyReceipts:
		if len(value) != receiptKeyLength {
			return fmt.Errorf("%d bytes: must be %d", len(value), receiptKeyLength)
		}
		r.Key = bytes.Clone(value)
	case keyTask:
		r.tasks[name], err = decodeTask(name, value)
	case keyFailed:
		r.failed[name], err = decodeFailed(name, value)
	case keyDone:
		r.done[name], err = decodeCompletion(name, value)
	case keyMember:
		r.Members[name], err = decodeMembership(name, value)
	case keyDrain:
		r.drains[name] = true
	default:
		err = errNotOurs
	}
	return err
}

var errNotOurs = errors.New("not a key of a manager, or of a later version")

func decodeTask(name string, value []byte) (*Task, error) {
	var j taskJSON
	content, err := decodeHead(value, &j)
	if err != nil {
		return nil, err
	}
	return j.task(name, content)
}

func decodeFailed(name string, value []byte) (*failedTask, error) {
	var j failedJSON
	content, err := decodeHead(value, &j)
	if err != nil {
		return nil, err
	}
	t, err := j.task(name, content)
	if err != nil {
		return nil, err
	}
	return &failedTask{FailedTask{
		Item: t.Item, Worker: string(j.Worker), At: j.At.UTC(), Err: j.Err, Attempts: j.Attempts,
	}, t.sum}, nil
}

func decodeHead(value []byte, j any) (content []byte, err error) {
	head, content, ok := bytes.Cut(value, []byte("\n"))
	if !ok {
		return nil, errors.New("no content")
	}
	return content, json.Unmarshal(head, j)
}

func (j taskJSON) task(name string, content []byte) (*Task, error) {
	s := orchestrator.TaskSettings{
		Instances: j.Instances, Handoff: orchestrator.Handoff(j.Handoff),
		Requires: j.Requires, MaxPerZone: j.MaxPerZone, Weight: j.Weight,
	}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return NewTask(Item{Name: name, Content: content, Settings: s.Normalized(), Revision: j.Revision}), nil
}

// NewTask returns a task for an item. The task owns the item's content.
func NewTask(i Item) *Task { return &Task{Item: i, sum: sha256.Sum256(i.Content)} }

func decodeCompletion(name string, value []byte) (*finished, error) {
	var j completionJSON
	if err := json.Unmarshal(value, &j); err != nil {
		return nil, err
	}
	d := &finished{Completion: Completion{Task: name, Revision: j.Revision, Worker: string(j.Worker), At: j.At.UTC()}}
	sum, err := hex.DecodeString(j.Content)
	if err != nil || len(sum) != len(d.sum) {
		return nil, fmt.Errorf("content %q is not a SHA-256", j.Content)
	}
	copy(d.sum[:], sum)
	return d, nil
}

func decodeMembership(name string, value []byte) (*Membership, error) {
	var j membershipJSON
	if err := json.Unmarshal(value, &j); err != nil {
		return nil, err
	}
	m := &Membership{WorkerID: WorkerID{name, j.Incarnation}, Address: j.Address, Lease: j.Lease, Draining: j.Draining, Settings: j.WorkerSettings}
	if m.Lease <= 0 {
		return nil, fmt.Errorf("lease is %v", m.Lease)
	}
	if err := m.Settings.Check(); err != nil {
		return nil, err
	}
	return m, m.WorkerID.Check()
}
