package rebalance

// Step 2: tasks with too many copies on open workers. The choice of the copies that
// stop decides how many others can stay.

import "slices"

// surplus holds the copies, on open workers, of the tasks that have too many there.
// Those tasks are numbered in order, so that their data is small and close together if
// they are few.
type surplus struct {
	*draft
	total int       // the number of surplus copies
	over  numbering // the tasks that have too many copies

	// By number of a task.
	excess []int32  // the number of its surplus copies
	met    []uint32 // the round of the search that met it last; see link
	head   []int32  // the latest of its copies, plus one; see link

	copies []surplusCopy // by worker
	links  []surplusLink // parallel to copies; see link
	first  []int32       // by worker: its first in copies; one more at the end
	next   []int32       // by worker: trim: the first that was not visited yet
	linked bool
	found  []int32 // single: the positions of these tasks in one list
	listed set     // single: by number: the tasks that one list has named so far
}

// surplusCopy is small: there may be as many as copies in all.
type surplusCopy struct{ number, position int32 }

type surplusLink struct {
	worker int32
	next   int32 // the previous copy of the same task, plus one
}

// reset empties s.
func (s *surplus) reset() {
	s.over.set, s.total = s.over.emptied(len(s.Want)), 0
	s.excess = s.excess[:0]
}

// add adds a task with n surplus copies. Tasks are added in order.
func (s *surplus) add(t, n int32) {
	s.over.add(t)
	s.excess = append(s.excess, n)
	s.total += int(n)
}

// collect collects the copies. One pass over the lists of the open workers.
func (s *surplus) collect() {
	s.over.number()
	s.first, s.copies, s.linked = s.first[:0], s.copies[:0], false
	tasks := s.over.set
	for w, list := range s.Running {
		s.first = append(s.first, int32(len(s.copies)))
		if s.States[w] != Open {
			continue
		}
		for k, t := range list {
			if !tasks.has(t) {
				continue
			}
			if at := s.offset[w] + int32(k); s.flags[at] == kept {
				s.copies = append(s.copies, surplusCopy{s.over.of(t), at})
			}
		}
	}
	s.first = append(s.first, int32(len(s.copies)))
}

// on returns the copies on w.
func (s *surplus) on(w int32) []surplusCopy {
	if len(s.copies) == 0 {
		return nil
	}
	return s.copies[s.first[w]:s.first[w+1]]
}

// link links the copies of each task, for searches.
func (s *surplus) link() {
	if s.linked || len(s.copies) == 0 {
		return
	}
	s.linked = true
	s.head = sized(s.head, len(s.excess))
	s.met = sized(s.met, len(s.excess))
	s.links = sized(s.links, len(s.copies))
	for w := range len(s.first) - 1 {
		for i := s.first[w]; i < s.first[w+1]; i++ {
			head := &s.head[s.copies[i].number]
			s.links[i] = surplusLink{int32(w), *head}
			*head = i + 1
		}
	}
}

// trim drops the surplus copies of each task, and assigns the extra units. relieve
// corrects the choice of copies, and has less to do if the choice is good. So trim first
// drops copies on workers that have too many, in order. Then it brings the others down to
// about the average load, and drops the rest in order. It visits each copy once: the
// copy stays if its task has no surplus at that point.
//
// O(copies of tasks with too many), after a pass over the lists.
func (s *surplus) trim() {
	if !s.single {
		s.copies = s.copies[:0]
		if s.hasSurplus {
			s.collect()
		}
	}
	if s.hasSurplus {
		left := s.running() - s.total
		s.next = append(s.next[:0], s.first...)
		s.dropSurplus(s.level)
		if average := int32(left / len(s.open)); average < s.level { // else it has been done
			s.dropSurplus(average)
		}
		s.dropSurplus(0)
	}
	s.extras()
}

// dropSurplus drops copies of tasks with too many from each worker that has more than the
// lower of its base and load.
func (s *surplus) dropSurplus(load int32) {
	copies, excess, flags := s.copies, s.excess, s.flags
	for _, w := range s.open {
		if s.total == 0 {
			return
		}
		above := int(s.load[w] - min(load, s.base[w]))
		if above <= 0 {
			continue
		}
		list, start := s.Running[w], s.offset[w]
		next, end, n := s.next[w], s.first[w+1], 0
		s.drops = slices.Grow(s.drops, above)
		drops := s.drops[len(s.drops):][:above]
		for ; n < len(drops) && next < end; next++ {
			// Without a branch, because it would be unpredictable.
			c, one := copies[next], 0
			if excess[c.number] > 0 {
				one = 1
			}
			excess[c.number] -= int32(one)
			drops[n] = drop{task: list[c.position-start], worker: w, position: c.position}
			flags[c.position] = dropped * flag(one) // or kept
			n += one
		}
		s.drops, s.next[w] = s.drops[:len(s.drops)+n], next
		s.load[w] -= int32(n)
		s.total -= n
	}
}

// extras assigns the extra units: first to workers that would otherwise have too many,
// then in order.
func (s *surplus) extras() {
	left := s.extra
	for _, above := range []bool{true, false} {
		for _, w := range s.open {
			if left > 0 && (s.load[w] > s.level) == above && s.takesExtra(w) {
				s.limit[w]++
				left--
			}
		}
	}
}
