package standing

import (
	"cmp"
	"iter"
	"maps"
	"slices"
)

// The book, and the rules by which it is written.

// maxBackoff bounds for how many terms a failure has its pair avoided.
const maxBackoff = 64

// Lifetime is how many terms apart Expire is worth a call.
const Lifetime = maxBackoff

// Pair is a task and a worker.
type Pair struct {
	Task   int32
	Worker uint64
}

// Record is what is held against a pair or a worker.
type Record struct {
	Failures int    // in a row
	Until    uint64 // the first term in which it is tried again
	Err      error  // the latest

	// blamed says, for a pair, that the worker was to blame.
	blamed bool
}

func (r *Record) fail(term uint64, err error) {
	r.Failures++
	r.Until = term + 1 + uint64(min(maxBackoff, 1<<min(r.Failures-1, 16)))
	r.Err = err
}

// Start is how a start ended: Err is nil where it succeeded.
type Start struct {
	Pair
	Err error
}

// Book holds what is avoided. The zero value is not ready; use New. It is not
// for concurrent use.
type Book struct {
	pairs   map[uint64]map[int32]*Record // by worker, then by task; none is empty
	workers map[uint64]*Record
	byTask  map[int32]int // how many pairs each is in
}

// New returns a book in which nothing is held against anyone.
func New() *Book {
	return &Book{
		pairs:   make(map[uint64]map[int32]*Record),
		workers: make(map[uint64]*Record),
		byTask:  make(map[int32]int),
	}
}

// Clone returns a copy that shares nothing with b.
func (b *Book) Clone() *Book {
	c := &Book{
		pairs:   make(map[uint64]map[int32]*Record, len(b.pairs)),
		workers: make(map[uint64]*Record, len(b.workers)),
		byTask:  maps.Clone(b.byTask),
	}
	for worker, tasks := range b.pairs {
		c.pairs[worker] = make(map[int32]*Record, len(tasks))
		for task, r := range tasks {
			copied := *r
			c.pairs[worker][task] = &copied
		}
	}
	for w, r := range b.workers {
		copied := *r
		c.workers[w] = &copied
	}
	return c
}

// Learn writes down how the starts of a term ended. runs tells whether a worker
// runs anything now, and seen whether a task was ever seen running.
func (b *Book) Learn(term uint64, starts []Start, runs func(worker uint64) bool, seen func(task int32) bool) {
	succeeded := make(map[uint64]bool)
	for _, s := range starts {
		if s.Err == nil {
			succeeded[s.Worker] = true
			b.Succeeded(s.Pair)
		}
	}
	closed := make(map[uint64]bool)
	for _, s := range starts {
		if s.Err == nil {
			continue
		}
		r := b.of(s.Pair)
		r.fail(term, s.Err)
		r.blamed = !runs(s.Worker) || seen(s.Task) && !b.FailedElsewhere(s.Pair)
		if !r.blamed || succeeded[s.Worker] || closed[s.Worker] {
			continue
		}
		closed[s.Worker] = true
		w := b.workers[s.Worker]
		if w == nil {
			w = &Record{}
			b.workers[s.Worker] = w
		}
		w.fail(term, s.Err)
	}
}

// of returns what is held against the pair, a new record if there is none.
func (b *Book) of(p Pair) *Record {
	tasks := b.pairs[p.Worker]
	if tasks == nil {
		tasks = make(map[int32]*Record)
		b.pairs[p.Worker] = tasks
	}
	r := tasks[p.Task]
	if r == nil {
		r = &Record{}
		tasks[p.Task] = r
		b.byTask[p.Task]++
	}
	return r
}

// Succeeded says that a worker runs a task, whatever was heard of the start. Where
// that opens the worker again it takes a step for each of its pairs, not for
// those of others: all may open at once.
func (b *Book) Succeeded(p Pair) {
	b.forget(p)
	if b.workers[p.Worker] == nil {
		return
	}
	delete(b.workers, p.Worker)
	for task, r := range b.pairs[p.Worker] {
		if r.blamed {
			b.forget(Pair{Task: task, Worker: p.Worker})
		}
	}
}

func (b *Book) forget(p Pair) {
	tasks := b.pairs[p.Worker]
	if tasks[p.Task] == nil {
		return
	}
	delete(tasks, p.Task)
	if len(tasks) == 0 {
		delete(b.pairs, p.Worker)
	}
	if b.byTask[p.Task]--; b.byTask[p.Task] == 0 {
		delete(b.byTask, p.Task)
	}
}

// Empty says that nothing is held against anyone.
func (b *Book) Empty() bool { return len(b.pairs) == 0 && len(b.workers) == 0 }

// Concerns says whether anything is held against a pair of the worker.
func (b *Book) Concerns(worker uint64) bool { return len(b.pairs[worker]) > 0 }

// Has says whether anything is held against the pair.
func (b *Book) Has(p Pair) bool { return b.pairs[p.Worker][p.Task] != nil }

// Closed says whether anything is held against the worker as a whole, and
// whether its time is up, so that it may be probed.
func (b *Book) Closed(worker uint64, term uint64) (closed, probation bool) {
	r := b.workers[worker]
	return r != nil, r != nil && r.Until <= term
}

// Avoided says whether the pair is avoided in the term.
func (b *Book) Avoided(p Pair, term uint64) bool {
	r := b.pairs[p.Worker][p.Task]
	return r != nil && r.Until > term
}

// Failed says whether anything is held against the task, on any worker.
func (b *Book) Failed(task int32) bool { return b.byTask[task] > 0 }

// FailedElsewhere says whether anything is held against the task on a worker
// other than the pair's.
func (b *Book) FailedElsewhere(p Pair) bool {
	elsewhere := b.byTask[p.Task]
	if b.Has(p) {
		elsewhere--
	}
	return elsewhere > 0
}

// Expire drops what is held against pairs that could have been tried again for
// as many terms as the longest failure is held against them.
func (b *Book) Expire(term uint64) {
	b.forgetFunc(func(_ Pair, r *Record) bool { return r.Until+maxBackoff < term })
}

func (b *Book) forgetFunc(obsolete func(Pair, *Record) bool) {
	for worker, tasks := range b.pairs {
		for task, r := range tasks {
			if p := (Pair{Task: task, Worker: worker}); obsolete(p, r) {
				b.forget(p)
			}
		}
	}
}

// ForgetWorkers drops what is held against the workers that are gone.
func (b *Book) ForgetWorkers(gone func(worker uint64) bool) {
	maps.DeleteFunc(b.workers, func(w uint64, _ *Record) bool { return gone(w) })
	b.forgetFunc(func(p Pair, _ *Record) bool { return gone(p.Worker) })
}

// ForgetTasks drops what is held against the tasks that are gone.
func (b *Book) ForgetTasks(gone func(task int32) bool) {
	b.forgetFunc(func(p Pair, _ *Record) bool { return gone(p.Task) })
}

// Tasks calls f with the task of each pair.
func (b *Book) Tasks(f func(task int32)) {
	for task := range b.byTask {
		f(task)
	}
}

// TasksOf returns the tasks of the pairs of a worker, in order.
func (b *Book) TasksOf(worker uint64) []int32 { return slices.Sorted(maps.Keys(b.pairs[worker])) }

// Pairs yields the pairs avoided in the term, by worker and then by task.
func (b *Book) Pairs(term uint64) iter.Seq2[Pair, Record] {
	return func(yield func(Pair, Record) bool) {
		var avoided []Pair
		for worker, tasks := range b.pairs {
			for task, r := range tasks {
				if r.Until > term {
					avoided = append(avoided, Pair{Task: task, Worker: worker})
				}
			}
		}
		slices.SortFunc(avoided, func(p, q Pair) int {
			return cmp.Or(cmp.Compare(p.Worker, q.Worker), cmp.Compare(p.Task, q.Task))
		})
		for _, p := range avoided {
			if !yield(p, *b.pairs[p.Worker][p.Task]) {
				return
			}
		}
	}
}

// Workers yields the closed workers, those on probation included, in order.
func (b *Book) Workers() iter.Seq2[uint64, Record] {
	return func(yield func(uint64, Record) bool) {
		for _, w := range slices.Sorted(maps.Keys(b.workers)) {
			if !yield(w, *b.workers[w]) {
				return
			}
		}
	}
}
