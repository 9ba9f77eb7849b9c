package etcd

// A random walk through the events of one task at a member.

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestE5_SeatWalk checks that only a claimed task runs, and that no claim ends
// before its task. In the end, the task runs if and only if it is assigned.
func TestE5_SeatWalk(t *testing.T) {
	for seed := range uint64(3000) {
		w := &seatWorld{T: t, random: rand.New(rand.NewPCG(seed, 1)), trouble: true}
		for range 200 {
			w.step()
		}
		w.trouble = false
		for range 500 {
			w.step()
		}
		require.Empty(t, w.todo, "seed %d: %v", seed, w.log)
		require.Equal(t, w.assigned != 0, w.has, "seed %d: %v", seed, w.log)
		require.Equal(t, w.assigned != 0, w.active != 0, "seed %d: %v", seed, w.log)
	}
}

// seatWorld is one task at one member: the keys in etcd, undelivered watch events,
// pending writes, and the worker.
type seatWorld struct {
	*testing.T
	random     *rand.Rand
	claimState claimState
	rev        int64
	assigned   int64
	active     int64
	watch      []int64 // undelivered values of assigned
	todo       []entry
	starting   bool // the worker is starting the task
	stopping   bool
	has        bool // the worker has the task
	trouble    bool // inject faults and change assignments
	log        []string
}

func (w *seatWorld) assign(to int64) {
	w.assigned = to
	w.watch = append(w.watch, to)
}

// step makes one random event happen, or none.
func (w *seatWorld) step() {
	switch n := w.random.IntN(5); {
	case n == 0 && w.trouble:
		w.lead()
	case n == 1 && len(w.watch) > 0:
		if w.trouble && w.random.IntN(3) == 0 {
			w.watch = w.watch[len(w.watch)-1:] // a resumed watch may deliver only the last value
		}
		w.happened(func(s *claimState) { s.assign(w.watch[0], false) })
		w.watch = w.watch[1:]
	case n == 2 && len(w.todo) > 0:
		w.write()
	case n == 3 && w.starting:
		w.starting = false
		var err error
		if w.has = !w.trouble || w.random.IntN(2) == 0; !w.has {
			err = errRefused
		}
		w.happened(func(s *claimState) { s.answered(err) })
	case n == 4 && w.stopping:
		w.stopping, w.has = false, false
		w.happened((*claimState).ended)
	}
	require.True(w, !w.has || w.active != 0, "unclaimed task runs: %v", w.log)
}

// lead assigns the task, perhaps repeatedly, or deletes the assignment. It does not
// wait for a stop, because a member need not trust the leader to do so.
func (w *seatWorld) lead() {
	if w.assigned != 0 && w.random.IntN(2) == 0 {
		w.assign(0)
		return
	}
	w.rev++
	w.assign(w.rev)
}

// write makes the first pending write like identity.operation. Sometimes the answer
// is lost, and the write is made again.
func (w *seatWorld) write() {
	e := w.todo[0]
	switch {
	case e.kind == doClaim && w.assigned == e.basis && w.active == 0:
		w.rev++
		w.active = w.rev
	case e.kind == doLeave && w.active == e.claim:
		require.False(w, w.has, "claim ended before its task: %v", w.log)
		w.active = 0
	}
	if (e.kind == doRefuse || e.kind == doLeave && e.reason != nil) && w.assigned == e.basis {
		w.assign(0)
	}
	active := w.active
	if w.trouble && w.random.IntN(3) == 0 {
		return
	}
	w.todo = w.todo[1:]
	w.happened(func(s *claimState) {
		switch {
		case e.kind == doClaim && active != 0:
			s.made(active)
		case e.kind == doClaim, e.kind == doRefuse:
			s.missed()
		case e.kind == doLeave:
			s.left()
		}
	})
}

// happened reports an event to the claimState and carries out the resulting action.
func (w *seatWorld) happened(event func(*claimState)) {
	event(&w.claimState)
	a := w.claimState.next(nil)
	w.log = append(w.log, fmt.Sprintf("%d %+v", a, w.claimState))
	switch a {
	case doStart:
		require.Equal(w, w.active, w.claimState.claim, "unclaimed task started: %v", w.log)
		w.starting = true
	case doStop:
		require.False(w, w.starting, "stopped while the start is in flight: %v", w.log)
		w.stopping = true
	case doClaim, doRefuse, doConfirm, doLeave:
		w.todo = append(w.todo, entry{kind: a, basis: w.claimState.basis, claim: w.claimState.claim, reason: w.claimState.failure})
	}
}
