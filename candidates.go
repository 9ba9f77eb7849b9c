package orchestrator

import "github.com/f8949c05/orchestrator/internal/standing"

// What may become a probe, held so that many probes are found in about one pass.

// candidates are the changes, the instances that wait, or the tasks of one
// worker, of which some may become probes. They are numbered from 0, and
// gathered by task: what rules out a task rules out all of its entries at once.
type candidates struct {
	tasks []candidate
	of    map[int32]int // by task, into tasks
	next  []int         // by entry, the next one of its task, or none
	ranks [anything + 1]ranking
	// without holds tasks that are out, whoever asks; it may grow.
	without map[int32]bool
}

// candidate is a task, in the order of their first entries, and what is left of
// its entries.
type candidate struct {
	task        int32
	first, last int // entries; first is none when all are used
}

// none is no entry.
const none = -1

// newCandidates makes candidates of entries, of which taskOf says the task, or
// false where it is none.
func newCandidates(entries int, taskOf func(entry int) (int32, bool)) *candidates {
	c := &candidates{of: make(map[int32]int), next: make([]int, entries)}
	for entry := range entries {
		c.next[entry] = none
		task, ok := taskOf(entry)
		if !ok {
			continue
		}
		if at, known := c.of[task]; known {
			c.next[c.tasks[at].last] = entry
			c.tasks[at].last = entry
			continue
		}
		c.of[task] = len(c.tasks)
		c.tasks = append(c.tasks, candidate{task, entry, entry})
	}
	return c
}

// rank sorts the tasks by how far they may be trusted, as far as that is the
// same for every worker.
func (c *candidates) rank(book *standing.Book, seen func(task int32) bool) {
	for at := range c.tasks {
		task := c.tasks[at].task
		for trust, trusted := range [...]bool{
			failedNowhereElse: !book.Failed(task), hasRun: seen(task), anything: true,
		} {
			if trusted {
				c.ranks[trust].at = append(c.ranks[trust].at, at)
			}
		}
	}
}

// find returns the first task that has an entry left and is trusted so far, and
// that may be had. own are the tasks that failed on the worker in question: what
// failed there alone failed nowhere else.
func (c *candidates) find(least trust, own []int32, may func(task int32) bool) (at int, ok bool) {
	at, ok = c.ranks[least].find(c.isGone, func(at int) bool { return may(c.tasks[at].task) })
	if least != failedNowhereElse {
		return at, ok
	}
	for _, task := range own {
		mine, known := c.of[task]
		if known && (!ok || mine < at) && !c.isGone(mine) && may(task) {
			at, ok = mine, true
		}
	}
	return at, ok
}

func (c *candidates) isGone(at int) bool {
	return c.tasks[at].first == none || c.without[c.tasks[at].task]
}

// entry returns the first entry of a task that is left.
func (c *candidates) entry(at int) int { return c.tasks[at].first }

// use takes the first entry of a task away.
func (c *candidates) use(at int) { c.tasks[at].first = c.next[c.tasks[at].first] }

// ranking is a list of tasks from which those that are used up are dropped as
// they are met.
type ranking struct {
	at      []int
	refused []int // of one search, until the next
}

// find returns the first that is not gone and may be had. What is refused is
// refused for a reason of its own each time (the worker has it, or failed to take
// it), and looked at again in the next search; what is gone is met once.
func (r *ranking) find(gone, may func(at int) bool) (int, bool) {
	r.refused = r.refused[:0]
	found, ok := 0, false
	i := 0
	for ; i < len(r.at) && !ok; i++ {
		switch at := r.at[i]; {
		case gone(at):
		case may(at):
			found, ok = at, true
			r.refused = append(r.refused, at)
		default:
			r.refused = append(r.refused, at)
		}
	}
	i -= len(r.refused)
	copy(r.at[i:], r.refused)
	r.at = r.at[i:]
	return found, ok
}
