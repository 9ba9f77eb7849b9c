package handover_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/handover"
)

func start(task, to int32) handover.Change {
	return handover.Change{Task: task, From: handover.None, To: to}
}

func stop(task, from int32) handover.Change {
	return handover.Change{Task: task, From: from, To: handover.None}
}

func move(task, from, to int32) handover.Change {
	return handover.Change{Task: task, From: from, To: to}
}

func order(n int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = int32(i)
	}
	return all
}

// drive makes every call that the machine allows, answering with f, one after
// the other, and returns what was written in which order.
func drive(m *handover.Machine, changes []handover.Change, f func(handover.Call, handover.Write) handover.Result) (log []string) {
	for {
		call, ok := m.Next()
		if !ok {
			return log
		}
		answers := make([]handover.Result, len(call.Writes))
		for i, w := range call.Writes {
			verb := "stop"
			if w.Start {
				verb = "start"
			}
			log = append(log, fmt.Sprintf("%s %d@%d", verb, changes[w.Change].Task, call.Worker))
			answers[i] = f(call, w)
		}
		m.Done(call, answers, false, false)
	}
}

func allDone(handover.Call, handover.Write) handover.Result { return handover.Done }

func TestMoveStopsBeforeItStarts(t *testing.T) {
	changes := []handover.Change{move(7, 0, 1)}
	m := handover.New(changes, 2, order(2), false)
	require.Equal(t, []string{"stop 7@0", "start 7@1"}, drive(m, changes, allDone))
	require.True(t, m.Over())
	out, _ := m.Outcome(0)
	require.Equal(t, handover.OutDone, out)
}

func TestMoveStartsFirstWhereAsked(t *testing.T) {
	changes := []handover.Change{{Task: 7, From: 0, To: 1, StartFirst: true}}
	m := handover.New(changes, 2, order(2), false)
	require.Equal(t, []string{"start 7@1", "stop 7@0"}, drive(m, changes, allDone))
}

func TestRefusedMoveIsGivenBack(t *testing.T) {
	changes := []handover.Change{move(7, 0, 1)}
	m := handover.New(changes, 2, order(2), false)
	log := drive(m, changes, func(c handover.Call, _ handover.Write) handover.Result {
		if c.Worker == 1 {
			return handover.Refused
		}
		return handover.Done
	})
	require.Equal(t, []string{"stop 7@0", "start 7@1", "start 7@0"}, log)
	out, _ := m.Outcome(0)
	require.Equal(t, handover.OutReturned, out)
}

func TestUnknownStartIsNotGivenBack(t *testing.T) {
	changes := []handover.Change{move(7, 0, 1)}
	m := handover.New(changes, 2, order(2), false)
	log := drive(m, changes, func(c handover.Call, _ handover.Write) handover.Result {
		if c.Worker == 1 {
			return handover.Unknown
		}
		return handover.Done
	})
	require.Equal(t, []string{"stop 7@0", "start 7@1"}, log)
	out, _ := m.Outcome(0)
	require.Equal(t, handover.OutUnknown, out)
}

func TestUnprovenReceiverRisksOneTask(t *testing.T) {
	var changes []handover.Change
	for task := range int32(30) {
		changes = append(changes, move(task, task%3, 3))
	}
	for _, batch := range []bool{false, true} {
		m := handover.New(changes, 4, order(4), batch)
		log := drive(m, changes, func(c handover.Call, _ handover.Write) handover.Result {
			if c.Worker == 3 {
				return handover.Refused
			}
			return handover.Done
		})
		require.Equal(t, []string{"stop 0@0", "start 0@3", "start 0@0"}, log)
		for i := range changes[1:] {
			out, why := m.Outcome(i + 1)
			require.Equal(t, handover.OutSkipped, out)
			require.Equal(t, handover.ReceiverFailed, why)
		}
	}
}

func TestReceiverGetsAsMuchAsItHasProved(t *testing.T) {
	var changes []handover.Change
	for task := range int32(15) {
		changes = append(changes, move(task, task, 15))
	}
	m := handover.New(changes, 16, order(16), true)
	var rounds []int
	for {
		stops := 0
		for {
			call, ok := m.Next()
			if !ok {
				break
			}
			if call.Worker == 15 {
				m.Done(call, make15(len(call.Writes)), false, false)
				break
			}
			stops++
			m.Done(call, make15(1), false, false)
		}
		if stops == 0 {
			break
		}
		rounds = append(rounds, stops)
	}
	require.True(t, m.Over())
	require.IsNonDecreasing(t, rounds[:len(rounds)-1])
}

// Of the first moves one fails after others have succeeded: then one move at a time begins.
func TestFirstMovesEndWithAFailure(t *testing.T) {
	var changes []handover.Change
	for task := range int32(15) {
		changes = append(changes, move(task, task, 15))
	}
	m := handover.New(changes, 16, order(16), true)
	m.FirstMoves(5)
	var rounds []int
	for len(rounds) < 2 {
		var stops []handover.Call // all that may be under way
		for call, ok := m.Next(); ok; call, ok = m.Next() {
			stops = append(stops, call)
		}
		rounds = append(rounds, len(stops))
		for _, call := range stops {
			m.Done(call, make15(1), false, false)
		}
		call, ok := m.Next()
		require.True(t, ok)
		require.EqualValues(t, 15, call.Worker)
		require.Len(t, call.Writes, len(stops))
		answers := make15(len(call.Writes))
		answers[len(answers)-1] = handover.Unknown
		m.Done(call, answers, false, false)
	}
	require.Equal(t, []int{5, 1}, rounds)
}

// With batches a source gets one call for all moves that its receivers have credit for, and each
// start that a receiver acknowledges lets one more begin.
func TestFirstMovesOfABatch(t *testing.T) {
	var changes []handover.Change
	for task := range int32(150) {
		changes = append(changes, move(task, 0, 1+task%3))
	}
	m := handover.New(changes, 4, order(4), true)
	m.FirstMoves(8)
	var stops []int // of each call to the source
	for calls := []handover.Call(nil); !m.Over(); {
		for call, ok := m.Next(); ok; call, ok = m.Next() {
			if calls = append(calls, call); call.Worker == 0 {
				stops = append(stops, len(call.Writes))
			}
		}
		for _, call := range calls {
			m.Done(call, make15(len(call.Writes)), false, false)
		}
		calls = nil
	}
	require.Equal(t, []int{24, 48, 78}, stops)
}

func make15(n int) []handover.Result {
	answers := make([]handover.Result, n)
	for i := range answers {
		answers[i] = handover.Done
	}
	return answers
}

// A source that is slow to stop a task delays only its own moves: one move that has begun
// takes a place at the receiver, but those that wait take none.
func TestSlowSourceHoldsUpOnlyItsOwnMoves(t *testing.T) {
	changes := []handover.Change{
		start(100, 2), // proves the receiver
		move(0, 0, 2), move(1, 0, 2), move(2, 0, 2), move(3, 0, 2),
		move(4, 1, 2), move(5, 1, 2), move(6, 1, 2), move(7, 1, 2),
	}
	m := handover.New(changes, 3, []int32{2, 1, 0}, false)
	slow := handover.Call{Worker: -1}
	for {
		call, ok := m.Next()
		if !ok {
			break
		}
		if call.Worker == 0 {
			slow = call // never answers
			continue
		}
		m.Done(call, make15(len(call.Writes)), false, false)
	}
	require.EqualValues(t, 0, slow.Worker)
	for i := 5; i <= 8; i++ {
		out, _ := m.Outcome(i)
		require.Equal(t, handover.OutDone, out, "move %d of the quick source", i)
	}
}

func TestNothingBeginsOnAWorkerThatTimedOut(t *testing.T) {
	changes := []handover.Change{start(0, 0), start(1, 0), move(2, 1, 0), stop(3, 1)}
	m := handover.New(changes, 2, order(2), false)
	call, ok := m.Next()
	require.True(t, ok)
	require.EqualValues(t, 0, call.Worker)
	m.Done(call, []handover.Result{handover.Unknown}, true, true)
	require.Equal(t, []string{"stop 3@1"}, drive(m, changes, allDone))
	require.True(t, m.Over())
	for i, want := range []handover.Outcome{handover.OutUnknown, handover.OutSkipped, handover.OutSkipped, handover.OutDone} {
		out, _ := m.Outcome(i)
		require.Equal(t, want, out, "change %d", i)
	}
}

func TestClosedWindows(t *testing.T) {
	changes := []handover.Change{move(0, 0, 1), move(1, 2, 1)}
	m := handover.New(changes, 3, order(3), false)
	first, ok := m.Next()
	require.True(t, ok)
	_, ok = m.Next()
	require.False(t, ok, "the receiver has proved nothing yet")
	m.CloseBegin()
	out, why := m.Outcome(1)
	if out == handover.Pending {
		_, ok = m.Next()
		require.False(t, ok)
		out, why = m.Outcome(1)
	}
	require.Equal(t, handover.OutSkipped, out)
	require.Equal(t, handover.WindowClosed, why)

	m.CloseSecond()
	m.Done(first, []handover.Result{handover.Done}, false, false)
	require.Equal(t, []string{"start 0@0"}, drive(m, changes, allDone))
	out, why = m.Outcome(0)
	require.Equal(t, handover.OutReturned, out)
	require.Equal(t, handover.WindowClosed, why)
	require.True(t, m.Over())
}

// When the window closes, each move that waits for its receiver's credit is dropped at
// once, with the reason.
func TestClosedWindowsDropParkedMoves(t *testing.T) {
	for _, c := range []struct {
		name  string
		close func(*handover.Machine)
		why   handover.Skip
	}{
		{"begin", (*handover.Machine).CloseBegin, handover.WindowClosed},
		{"second", (*handover.Machine).CloseSecond, handover.WindowClosed},
		{"back", (*handover.Machine).CloseBack, handover.TermEnded},
	} {
		for _, batch := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, ", batches ", batch), func(t *testing.T) {
				changes := []handover.Change{move(0, 0, 3), move(1, 1, 3), move(2, 1, 3), move(3, 2, 3)}
				m := handover.New(changes, 4, order(4), batch)
				call, ok := m.Next()
				require.True(t, ok)
				_, ok = m.Next()
				require.False(t, ok, "the receiver has proved nothing yet")
				c.close(m)
				for i := range changes[1:] {
					out, why := m.Outcome(i + 1)
					require.Equal(t, handover.OutSkipped, out)
					require.Equal(t, c.why, why)
				}
				m.Done(call, []handover.Result{handover.Refused}, false, false)
				require.True(t, m.Over())
			})
		}
	}
}

// TestRandom drives machines through random changes, answers, timeouts and
// closing windows, and checks after every step what the package promises.
func TestRandom(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		newModel(t, r, seed).run()
		if t.Failed() {
			return
		}
	}
}

// model watches a machine from outside.
type model struct {
	t       *testing.T
	r       *rand.Rand
	seed    uint64
	changes []handover.Change
	m       *handover.Machine
	batch   bool

	flying   []handover.Call
	stuck    []int32
	busy     map[int32]bool
	timedOut map[int32]bool
	writes   map[int32][]handover.Write // answered Done, by change
	sent     map[int32]int              // writes sent, by change
	refused  map[int32]bool             // whose start was certainly refused
	acked    map[int32]int              // starts acknowledged by a worker
	barred   map[int32]bool             // receivers that failed a move before they had proved anything
	first    []int                      // by worker: the moves that may be under way to it before it has acknowledged a start
	closed   int
}

func newModel(t *testing.T, r *rand.Rand, seed uint64) *model {
	workers := 2 + r.IntN(6)
	var changes []handover.Change
	for task := range int32(r.IntN(40)) {
		from, to := int32(r.IntN(workers)), int32(r.IntN(workers))
		switch {
		case r.IntN(4) == 0:
			changes = append(changes, start(task, to))
		case r.IntN(4) == 0 || from == to:
			changes = append(changes, stop(task, from))
		default:
			c := move(task, from, to)
			c.StartFirst, c.Last = r.IntN(3) == 0, r.IntN(5) == 0
			changes = append(changes, c)
		}
	}
	batch := r.IntN(2) == 0
	watched := &model{
		t: t, r: r, seed: seed, changes: changes, batch: batch,
		m:    handover.New(changes, workers, order(workers), batch),
		busy: map[int32]bool{}, timedOut: map[int32]bool{}, writes: map[int32][]handover.Write{},
		sent: map[int32]int{}, refused: map[int32]bool{}, acked: map[int32]int{}, barred: map[int32]bool{},
	}
	watched.first = slices.Repeat([]int{1}, workers)
	if r.IntN(2) == 0 {
		n := 1 + r.IntN(5)
		watched.first = slices.Repeat([]int{n}, workers)
		watched.m.FirstMoves(n)
	}
	return watched
}

func (m *model) run() {
	for steps := 0; !m.m.Over(); steps++ {
		if steps > 5000 {
			require.Fail(m.t, "does not end", "seed %d", m.seed)
		}
		call, ok := m.m.Next()
		if ok {
			m.check(call)
			m.flying = append(m.flying, call)
			if m.r.IntN(3) > 0 {
				continue
			}
		}
		if m.m.Over() { // what was left has just been dropped
			break
		}
		m.event(ok)
	}
	for i := range m.changes {
		m.checkOutcome(int32(i))
	}
}

func (m *model) event(progress bool) {
	switch n := m.r.IntN(40); {
	case n == 0 && len(m.stuck) > 0:
		m.m.Returned(m.stuck[0])
		delete(m.busy, m.stuck[0])
		m.stuck = m.stuck[1:]
	case n == 1 || len(m.flying) == 0 && !progress:
		if len(m.flying) == 0 && !progress {
			require.True(m.t, len(m.stuck) > 0 || n == 1, "seed %d: nothing in flight, nothing stuck, and not over", m.seed)
		}
		m.closed++
		switch m.closed {
		case 1:
			m.m.CloseBegin()
		case 2:
			m.m.CloseSecond()
		default:
			m.m.CloseBack()
		}
	case n < 10 && len(m.flying) > 0:
		m.answer(m.r.IntN(len(m.flying)))
	case len(m.flying) > 0:
		m.land(m.r.IntN(len(m.flying)))
	}
}

// answer lets one of several writes of a call be done before the others.
func (m *model) answer(k int) {
	call := &m.flying[k]
	if len(call.Writes) < 2 {
		return
	}
	i := m.r.IntN(len(call.Writes))
	w := call.Writes[i]
	call.Writes = slices.Delete(slices.Clone(call.Writes), i, i+1)
	m.done(call.Worker, w)
	m.m.Answered(w, handover.Done)
}

// done records a write that was acknowledged.
func (m *model) done(worker int32, w handover.Write) {
	m.writes[w.Change] = append(m.writes[w.Change], w)
	if w.Start {
		m.acked[worker]++
	}
}

func (m *model) land(k int) {
	call := m.flying[k]
	m.flying = append(m.flying[:k], m.flying[k+1:]...)
	timedOut := m.r.IntN(15) == 0
	stuck := timedOut && m.r.IntN(2) == 0
	answers := make([]handover.Result, len(call.Writes))
	for i, w := range call.Writes {
		answers[i] = handover.Unknown
		if !timedOut {
			answers[i] = []handover.Result{
				handover.Done, handover.Done, handover.Done, handover.Done, handover.Done,
				handover.Refused, handover.Stopping, handover.Unknown,
			}[m.r.IntN(8)]
		}
		if answers[i] == handover.Done {
			m.done(call.Worker, w)
		}
		if answers[i] == handover.Refused && w.Start {
			m.refused[w.Change] = true
		}
		failed := answers[i] == handover.Refused || answers[i] == handover.Unknown
		if c := m.changes[w.Change]; w.Start && !w.Back && c.From != handover.None && failed {
			m.first[c.To] = 1
			m.barred[c.To] = m.barred[c.To] || m.acked[c.To] == 0
		}
	}
	m.timedOut[call.Worker] = m.timedOut[call.Worker] || timedOut
	if stuck {
		m.stuck = append(m.stuck, call.Worker)
	} else {
		delete(m.busy, call.Worker)
	}
	m.m.Done(call, answers, timedOut, stuck)
}

// check holds a call against the promises, before it is made.
func (m *model) check(call handover.Call) {
	t := m.t
	require.False(t, m.busy[call.Worker], "seed %d: two calls at once to worker %d", m.seed, call.Worker)
	m.busy[call.Worker] = true
	require.True(t, m.batch || len(call.Writes) == 1, "seed %d: a batch", m.seed)
	for _, w := range call.Writes {
		c := m.changes[w.Change]
		isMove := c.From != handover.None && c.To != handover.None
		done := m.writes[w.Change]
		switch m.sent[w.Change]++; m.sent[w.Change] {
		case 1:
			require.Zero(t, m.closed, "seed %d: change %d begins after the window", m.seed, w.Change)
			require.False(t, m.timedOut[call.Worker], "seed %d: change %d begins on a worker that timed out", m.seed, w.Change)
			require.Equal(t, c.From == handover.None || isMove && c.StartFirst, w.Start)
			if isMove {
				require.False(t, m.barred[c.To], "seed %d: change %d begins to move to worker %d, which failed another move", m.seed, w.Change, c.To)
				under := 0
				for i, other := range m.changes {
					if other.From != handover.None && other.To == c.To && m.undecided(int32(i)) {
						under++
					}
				}
				require.LessOrEqual(t, under, m.first[c.To]+m.acked[c.To], "seed %d: moves under way to worker %d", m.seed, c.To)
			}
		case 2:
			if w.Back { // the second half could not be sent
				require.False(t, c.StartFirst)
				require.Len(t, done, 1)
				break
			}
			require.True(t, isMove)
			require.Len(t, done, 1, "seed %d: the second half of change %d before the first was acknowledged", m.seed, w.Change)
			require.Equal(t, c.StartFirst, !w.Start)
			require.Less(t, m.closed, 2)
		case 3:
			require.True(t, w.Back && w.Start && m.refused[w.Change], "seed %d: change %d", m.seed, w.Change)
		default:
			require.Fail(t, "too many writes", "seed %d: change %d", m.seed, w.Change)
		}
		want := c.From
		if w.Start && !w.Back {
			want = c.To
		}
		require.Equal(t, want, call.Worker)
		require.Less(t, m.closed, 3, "seed %d: a write after the end", m.seed)
	}
}

// undecided reports whether a move has begun, and its start at the receiver was neither
// answered nor dropped, as far as the calls show.
func (m *model) undecided(i int32) bool {
	if m.sent[i] == 0 {
		return false
	}
	if out, skip := m.m.Outcome(int(i)); out != handover.Pending || skip != handover.NotSkipped {
		return false // it is over, or its task is given back
	}
	for _, w := range m.writes[i] {
		if w.Start {
			return false
		}
	}
	return !m.refused[i]
}

func (m *model) checkOutcome(i int32) {
	c := m.changes[i]
	out, skip := m.m.Outcome(int(i))
	starts, stops := 0, 0
	for _, w := range m.writes[i] {
		if w.Start {
			starts++
		} else {
			stops++
		}
	}
	switch out {
	case handover.OutDone:
		require.Equal(m.t, c.To != handover.None, starts == 1)
		require.Equal(m.t, c.From != handover.None, stops == 1)
	case handover.OutReturned:
		require.Equal(m.t, []int{1, 1}, []int{starts, stops})
	case handover.OutUnstarted:
		require.Equal(m.t, []int{0, 1}, []int{starts, stops})
	case handover.OutSkipped:
		require.Zero(m.t, m.sent[i])
		require.NotEqual(m.t, handover.NotSkipped, skip)
	case handover.Pending:
		require.Fail(m.t, "no outcome", "seed %d: change %d", m.seed, i)
	}
}

// A change with Last begins when no other change can begin. It does not wait for those of
// a worker that hangs, which are dropped only at its timeout.
func TestChangesWithLast(t *testing.T) {
	changes := []handover.Change{
		{Task: 0, From: handover.None, To: 1, Last: true},
		start(1, 0), start(2, 0), // the worker hangs in the first
		start(3, 1),
	}
	m := handover.New(changes, 2, order(2), false)
	var sent []string
	for {
		call, ok := m.Next()
		if !ok {
			break
		}
		sent = append(sent, fmt.Sprint(changes[call.Writes[0].Change].Task, "@", call.Worker))
		if call.Worker != 0 {
			m.Done(call, []handover.Result{handover.Done}, false, false)
		}
	}
	require.Equal(t, []string{"1@0", "3@1", "0@1"}, sent)
}
