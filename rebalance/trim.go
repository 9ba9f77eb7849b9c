package rebalance

import "slices"

// Step 1: tasks with too many copies on open workers. Which ones go decides how
// many others can stay.

// overs holds every copy, on open workers, of the tasks that have too many.
type overs struct {
	copies []overCopy
	first  []int32 // by worker: its first in copies; one more at the end
	head   []int32 // by task: the latest in copies, plus one
	tasks  []int32
}

type overCopy struct {
	task, worker, position int32
	next                   int32 // the one before of the same task, plus one
}

// trim drops as many copies of each task as it has too many, those on the
// fullest workers, and gives out the extra units.
//
// O(tasks) where none has; else one pass over the lists, and sorting the copies
// of each such task.
func (p *Planner) trim() {
	p.collectOvers()
	var copies []int32
	for _, t := range p.overs.tasks {
		copies = copies[:0]
		for i := p.overs.head[t]; i > 0; i = p.overs.copies[i-1].next {
			copies = append(copies, i-1)
		}
		slices.SortFunc(copies, func(i, j int32) int {
			v, w := p.overs.copies[i].worker, p.overs.copies[j].worker
			if a, b := p.load[v]-p.base[v], p.load[w]-p.base[w]; a != b {
				return int(b - a)
			}
			return int(v - w)
		})
		for _, i := range copies[:p.tasks[t].open-p.need[t]] {
			p.lose(p.overs.copies[i].worker, p.overs.copies[i].position)
		}
	}
	p.extras()
}

func (p *Planner) collectOvers() {
	o := &p.overs
	o.copies, o.tasks, o.first = o.copies[:0], o.tasks[:0], o.first[:0]
	for t, need := range p.need {
		if p.tasks[t].open > need && p.isExpected(int32(t)) {
			o.tasks = append(o.tasks, int32(t))
		}
	}
	if len(o.tasks) == 0 {
		return
	}
	o.head = sized(o.head, len(p.Want))
	for w, list := range p.Held {
		o.first = append(o.first, int32(len(o.copies)))
		if p.States[w] != Open {
			continue
		}
		for k, t := range list {
			at := p.offset[w] + int32(k)
			if p.tasks[t].open <= p.need[t] || p.flags[at] != kept {
				continue
			}
			o.copies = append(o.copies, overCopy{task: t, worker: int32(w), position: at, next: o.head[t]})
			o.head[t] = int32(len(o.copies))
		}
	}
	o.first = append(o.first, int32(len(o.copies)))
}

// of returns the copies on w.
func (o *overs) of(w int32) []overCopy {
	if len(o.tasks) == 0 {
		return nil
	}
	return o.copies[o.first[w]:o.first[w+1]]
}

// relieve exchanges drops as long as that relieves a worker that has too many:
// this is the search for a maximum zero-cost flow. It goes in rounds; in each,
// what led nowhere is not tried again. A round without success proves that
// there is no more to gain.
//
// O(copies of tasks with too many) a round.
func (p *Planner) relieve() {
	if len(p.overs.tasks) == 0 {
		return
	}
	for success := true; success; {
		success = false
		p.search.begin(p)
		for _, w := range p.open {
			if p.room(w) >= 0 {
				continue
			}
			p.search.visit(w)
			for p.room(w) < 0 && p.vacate(w) {
				success = true
			}
		}
	}
}
