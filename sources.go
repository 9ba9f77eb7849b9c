package orchestrator

import (
	"cmp"
	"container/heap"

	"github.com/f8949c05/orchestrator/internal/handover"
)

// Where a probe is taken from that the plan does not offer.

// sources are the workers that have something to give, those with the most
// first. The zero value is to be made ready by start.
type sources struct {
	after []int // by worker: what it has when the term is over
	order loads
	// tasks holds what a worker has, once it was looked at, and changing the
	// tasks of which some copy starts, stops or moves: those stay where they are.
	tasks    map[int32]*candidates
	changing map[int32]bool
}

// load is what a worker had when it was put in order. That may be out of date;
// but where a worker has got something since, it has another one that says so.
type load struct {
	worker int32
	tasks  int
}

// loads is a heap: the worker with the most is first, of equals the one added
// first.
type loads []load

func (l loads) Len() int      { return len(l) }
func (l loads) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l loads) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(l[j].tasks, l[i].tasks), cmp.Compare(l[i].worker, l[j].worker)) < 0
}

// Push is called by package heap, and so is Pop.
func (l *loads) Push(x any) { *l = append(*l, x.(load)) } //nolint:errcheck // only loads are pushed

// Pop removes the last.
func (l *loads) Pop() any {
	last := (*l)[len(*l)-1]
	*l = (*l)[:len(*l)-1]
	return last
}

func (s *sources) isReady() bool { return s.after != nil }

// start takes over what the workers have, after the changes planned so far, and
// which of them may give.
func (s *sources) start(after []int, mayGive func(worker int) bool, changes []change) {
	s.after = after
	s.tasks, s.changing = make(map[int32]*candidates), make(map[int32]bool, len(changes))
	for i := range changes {
		c := &changes[i]
		s.changing[c.Task] = true
		if c.From != handover.None {
			after[c.From]--
		}
		if c.To != handover.None {
			after[c.To]++
		}
	}
	for w, n := range after {
		if mayGive(w) {
			s.order = append(s.order, load{int32(w), n})
		}
	}
	heap.Init(&s.order)
}

// most returns the worker that has the most, of those that have at least two
// more than the one that is to get something.
func (s *sources) most(receiver int32) (from int32, ok bool) {
	own := false
	for len(s.order) > 0 {
		top := s.order[0]
		switch {
		case top.tasks != s.after[top.worker]:
			s.order[0].tasks = s.after[top.worker]
			heap.Fix(&s.order, 0)
			continue
		case top.worker == receiver:
			heap.Pop(&s.order)
			own = true
			continue
		}
		from, ok = top.worker, top.tasks >= s.after[receiver]+2
		if own {
			heap.Push(&s.order, load{receiver, s.after[receiver]})
		}
		return from, ok
	}
	if own {
		heap.Push(&s.order, load{receiver, s.after[receiver]})
	}
	return from, ok
}

// of returns what a worker has to give.
func (s *sources) of(worker int32, candidatesOf func() *candidates) *candidates {
	c := s.tasks[worker]
	if c == nil {
		c = candidatesOf()
		c.without = s.changing
		s.tasks[worker] = c
	}
	return c
}

// shift takes note that a task goes to a worker, from another one or from
// nowhere, or that its way there leads elsewhere.
func (s *sources) shift(task, from, to int32) {
	if !s.isReady() {
		return // start will see it
	}
	s.changing[task] = true
	if from != handover.None {
		s.after[from]--
	}
	s.after[to]++
	heap.Push(&s.order, load{to, s.after[to]})
}
