package state

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// history plays events against a state and its store. It checks the guarantees from
// the point of view of the workers, which use their own clocks, and of an
// orchestrator, which learns only what is stored.
type history struct {
	t     *testing.T
	now   time.Duration
	state *State
	disk  Records

	processes map[WorkerID]*process
	told      struct { // the orchestrator
		members map[string]WorkerID
		tasks   map[string]bool
	}
	pending   []func()                  // answers that wait for a save
	completed map[string]map[int64]bool // ever stored
	revisions map[int64]string          // versions that were returned, with their content
	highest   int64
	epoch     uint64
	started   time.Duration
}

// process is a worker's process.
type process struct {
	lease time.Duration
	until time.Duration // when its lease expires, by its own clock
	heard time.Duration // when the running manager last heard it; -1: not yet
	left  bool
}

// play makes an event of each byte and the one after it.
func play(t *testing.T, events []byte) {
	h := &history{
		t: t, disk: newRecords(), processes: make(map[WorkerID]*process),
		completed: make(map[string]map[int64]bool), revisions: make(map[int64]string),
	}
	h.told.members, h.told.tasks = make(map[string]WorkerID), make(map[string]bool)
	h.restart()
	for len(events) >= 2 {
		h.event(events[0], events[1])
		h.check()
		events = events[2:]
	}
}

func (h *history) at() time.Time { return at(h.now) }

// restart kills the manager, which loses what it has not saved, and starts the next.
func (h *history) restart() {
	h.pending = nil
	read := newRecords()
	for key, value := range h.disk.Encode() {
		require.NoError(h.t, read.decode(key, value))
	}
	require.Equal(h.t, h.disk, read)
	h.state = testState(read)
	h.state.Start(h.at())
	h.started = h.now
	for _, p := range h.processes {
		p.heard = -1
	}
	h.told.members, h.told.tasks = make(map[string]WorkerID), make(map[string]bool)
	for name, m := range h.disk.Members {
		h.told.members[name] = m.WorkerID
	}
	for name := range h.disk.tasks {
		h.told.tasks[name] = true
	}
	h.save()
	require.Greater(h.t, h.disk.Epoch, h.epoch, "epochs rise")
	h.epoch = h.disk.Epoch
}

// save stores the changes, and then passes them on.
func (h *history) save() {
	change := h.state.Take()
	n := h.disk.delta(&change)
	for name, d := range change.done {
		if d == nil {
			continue
		}
		if h.completed[name] == nil {
			h.completed[name] = make(map[int64]bool)
		}
		require.False(h.t, h.completed[name][d.Revision], "%s is completed twice in version %d", name, d.Revision)
		h.completed[name][d.Revision] = true
	}
	h.disk.Apply(&change)
	for _, w := range n.Gone {
		require.Equal(h.t, w, h.told.members[w.Name])
		p := h.processes[w]
		require.True(h.t, p.left || h.now >= p.until, "%v was removed, but its lease lasts until %v, now %v", w, p.until, h.now)
		delete(h.told.members, w.Name)
	}
	for _, a := range n.Came {
		before, ok := h.told.members[a.Name]
		require.True(h.t, !ok || before == a.WorkerID, "two live members %s", a.Name)
		h.told.members[a.Name] = a.WorkerID
	}
	for _, name := range n.Unexpected {
		delete(h.told.tasks, name)
	}
	for _, task := range n.Expected {
		h.told.tasks[task.Name] = true
	}
	answers := h.pending
	h.pending = nil
	for _, answer := range answers {
		answer()
	}
}

// event plays one of the possible events.
func (h *history) event(what, how byte) {
	w := WorkerID{fmt.Sprint("w", how%3), uint64(how/3%4) + 1}
	p := h.processes[w]
	if p == nil {
		p = &process{lease: time.Duration(1+how%5) * time.Second, heard: -1}
		h.processes[w] = p
	}
	name := fmt.Sprint("t", how%4)
	now := h.now
	switch what % 12 {
	case 0, 1:
		h.now += time.Duration(how) * 10 * time.Millisecond
	case 2:
		h.now += time.Millisecond
		h.state.Expire(h.at())
	case 3:
		if p.until > 0 || p.left { // acknowledged: the worker continues with heartbeats
			return
		}
		err := h.state.Register(h.at(), Membership{WorkerID: w, Address: "192.0.2.1:7000", Lease: p.lease})
		if err == nil {
			p.heard = now
			h.pending = append(h.pending, func() { p.until = max(p.until, now+p.lease) })
		}
	case 4, 5, 6:
		if err := beat(h.state, h.at(), w, how > 200); err == nil {
			p.heard = now
			if !p.left && p.until > 0 {
				p.until = max(p.until, now+p.lease)
			}
		}
	case 7:
		p.left = true
		p.until = max(p.until, 1) // it does not register again either
		h.state.Leave(w)
	case 8:
		content := fmt.Sprint(how / 4 % 3)
		stored := h.state.Put([]*Task{item(name, content)})[0]
		h.pending = append(h.pending, func() { h.tell(name, content, stored.Revision) })
	case 9:
		_ = h.state.Remove([]string{name})
		if how > 128 {
			h.state.Forget([]string{name})
		} else if how > 64 {
			_ = h.state.Retry([]string{name})
		}
	case 10:
		h.conclude(w, name, int64(how/4%16)+h.highest-8, how%2 == 0)
	case 11:
		switch {
		case how < 16:
			h.restart()
		case how < 48:
			h.state.Called(h.at(), w, how%2 == 0)
		case how < 64:
			h.state.Drain(w.Name, how%2 == 0)
		default:
			h.save()
		}
	}
}

// tell checks the answer to a put.
func (h *history) tell(name, content string, revision int64) {
	says := name + "=" + content
	if before, ok := h.revisions[revision]; ok {
		require.Equal(h.t, before, says, "two contents of version %d", revision)
		return
	}
	require.Greater(h.t, revision, h.highest, "%s: versions rise", says)
	h.revisions[revision] = says
	h.highest = revision
}

func (h *history) conclude(w WorkerID, name string, version int64, fails bool) {
	e := h.state.conclusion(w.Name, name, version)
	if fails {
		e.Failure = &Failure{Attempts: 1}
	}
	expected, done := h.state.tasks[name], h.state.done[name]
	if failed := h.state.failed[name]; failed != nil {
		expected = &Task{Item: failed.Item}
	}
	switch v := h.state.Conclude(h.at(), w.Name, e); {
	case done != nil && version <= done.Revision, expected != nil && version == expected.Revision:
		require.Equal(h.t, DoneRecorded, v)
		require.NotContains(h.t, h.state.tasks, name)
	case expected != nil && version < expected.Revision:
		require.Equal(h.t, DoneSuperseded, v)
	default:
		require.Equal(h.t, DoneUnknown, v)
	}
}

// check compares the state with the rules.
func (h *history) check() {
	b := h.state
	require.Len(h.t, b.live, len(b.Members))
	unheard := 0
	for name, m := range b.Members {
		live := b.live[name]
		require.NotNil(h.t, live)
		require.Equal(h.t, name, m.Name)
		require.False(h.t, b.ended.has(m.WorkerID), "%v is a member, but has ended", m.WorkerID)
		if live.heard.IsZero() {
			unheard++
			require.Equal(h.t, at(h.started).Add(m.Lease), live.until)
		}
	}
	require.Equal(h.t, unheard, b.unheard)
	for w, p := range h.processes {
		m := b.Members[w.Name]
		member := m != nil && m.WorkerID == w
		if !p.left && h.now < p.until {
			require.True(h.t, member, "%v relies on its lease until %v, now %v", w, p.until, h.now)
		}
		if p.heard >= 0 && !p.left && h.now < p.heard+p.lease {
			require.True(h.t, member, "%v was heard at %v, now %v", w, p.heard, h.now)
		}
	}
	for name := range b.tasks {
		require.NotContains(h.t, b.done, name, "completed, and expected")
		require.NotContains(h.t, b.failed, name, "failed, and expected")
	}
	// The stored records and the unsaved changes add up to the state.
	kept := h.disk.clone()
	kept.Apply(&b.change)
	require.Equal(h.t, b.Records, kept)
	// The orchestrator knows what is stored.
	require.Len(h.t, h.told.members, len(h.disk.Members))
	for name, m := range h.disk.Members {
		require.Equal(h.t, m.WorkerID, h.told.members[name])
	}
	require.Len(h.t, h.told.tasks, len(h.disk.tasks))
	for name := range h.disk.tasks {
		require.True(h.t, h.told.tasks[name])
	}
}

func TestR2_RandomHistories(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 0))
		events := make([]byte, 300)
		for i := range events {
			events[i] = byte(r.Uint32())
		}
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, events) }) {
			return
		}
	}
}

func FuzzBook(f *testing.F) {
	f.Add([]byte{3, 0, 11, 255, 0, 100, 4, 0, 11, 0, 2, 0})
	f.Add([]byte{8, 0, 11, 255, 10, 36, 11, 255, 8, 0, 8, 4, 11, 255})
	f.Fuzz(func(t *testing.T, events []byte) {
		play(t, events[:min(len(events), 2000)])
	})
}
