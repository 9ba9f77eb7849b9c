package simulator

// The agenda: what the world does, and when. One goroutine works it off.

import (
	"container/heap"
	"time"
)

// agenda is what is still to come.
type agenda struct {
	entries entries
	added   uint64
}

type agendaEntry struct {
	at    time.Time
	order uint64 // of those at the same time, what was entered first comes first
	do    func()
}

// in enters something that is to happen when d has passed.
func (a *agenda) in(d time.Duration, do func()) {
	a.added++
	at := time.Now().Add(worldLane.after(max(d, period)))
	heap.Push(&a.entries, agendaEntry{at: at, order: a.added, do: do})
}

// next returns how long it is until the next entry, and false if there is none.
func (a *agenda) next() (time.Duration, bool) {
	if len(a.entries) == 0 {
		return 0, false
	}
	return time.Until(a.entries[0].at), true
}

// do does what comes next.
func (a *agenda) do() {
	e, _ := heap.Pop(&a.entries).(agendaEntry)
	e.do()
}

// entries is a heap of them, the next one first.
type entries []agendaEntry

func (e entries) Len() int { return len(e) }

func (e entries) Less(i, j int) bool {
	if !e[i].at.Equal(e[j].at) {
		return e[i].at.Before(e[j].at)
	}
	return e[i].order < e[j].order
}

func (e entries) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

// Push is for package heap.
func (e *entries) Push(v any) {
	if entry, ok := v.(agendaEntry); ok {
		*e = append(*e, entry)
	}
}

// Pop is for package heap.
func (e *entries) Pop() any {
	last := len(*e) - 1
	v := (*e)[last]
	(*e)[last] = agendaEntry{}
	*e = (*e)[:last]
	return v
}
