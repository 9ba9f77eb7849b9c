package rebalance

// Which workers cannot gain a copy of a task.

import (
	"math/bits"
	"slices"
)

// index holds, for some tasks, the open workers that cannot gain a copy: those that have
// one, and those that may not.
type index struct {
	tasks numbering

	// A bit for each pair, if there are few enough tasks and workers.
	wide  int // words a task; 0: there are none
	words set // by number

	// Otherwise a list for each task.
	start   []int32 // by number
	length  []int32
	workers []int32
}

// indexWords bounds the memory of the bits: 32 MiB.
const indexWords = 1 << 22

// begin starts an index of no task yet.
func (x *index) begin(tasks int) { x.tasks.set = x.tasks.emptied(tasks) }

// build makes the index of the tasks that were added since begin.
//
// One pass over the lists of the open workers.
func (x *index) build(d *draft) {
	x.tasks.number()
	x.wide = (len(d.States) + 63) / 64
	if n := x.tasks.count * x.wide; n <= indexWords {
		x.words = sized(x.words, n)
	} else {
		x.wide = 0
		x.start, x.length = x.start[:0], sized(x.length, x.tasks.count)
		size := int32(0)
		x.tasks.all(func(t int32) {
			x.start = append(x.start, size)
			size += d.need[t] + 1 // one more while it moves
			if len(d.Forbidden) > 0 {
				size += d.barred[t]
			}
		})
		x.workers = sized(x.workers, int(size))
	}
	for _, w := range d.open {
		x.fill(d, w)
	}
	for _, c := range d.changes {
		if c.To != None && d.States[c.To] == Open && x.tasks.has(c.Task) {
			x.put(c.Task, c.To)
		}
	}
}

// fill adds the tasks that w cannot gain, except those that it starts.
func (x *index) fill(d *draft, w int32) {
	forbidden := d.forbid.row(w)
	round := uint32(0)
	if len(forbidden) > 0 {
		round = d.mark()
		for _, t := range forbidden {
			d.marks[t] = round
		}
	}
	flags := d.flags[d.offset[w]:][:len(d.Running[w])]
	if round == 0 && x.wide > 0 {
		x.fillBits(d.Running[w], flags, w)
	} else {
		x.fillRest(d, w, flags, round)
	}
	for _, t := range forbidden {
		if x.tasks.has(t) && d.marks[t] == round { // neither held nor added before
			x.put(t, w)
			d.marks[t] = 0
		}
	}
}

// fillBits adds the kept tasks of a list, for a worker without forbidden tasks.
func (x *index) fillBits(list []int32, flags []flag, w int32) {
	ranks, words, wide := x.tasks.ranks, x.words[w/64:], x.wide
	bit := uint64(1) << (w % 64)
	flags = flags[:len(list)]
	for k, t := range list {
		r := &ranks[uint32(t)/64]
		upTo := r.word << (^uint32(t) % 64) // the highest bit is t's, the others are of tasks before it
		if int64(upTo) < 0 && flags[k].runs() {
			number := r.before + bits.OnesCount64(upTo<<1)
			words[number*wide] |= bit
		}
	}
}

// fillRest adds the kept tasks of w's list if w has forbidden tasks, which round marks, or
// if there are no bits.
func (x *index) fillRest(d *draft, w int32, flags []flag, round uint32) {
	for k, t := range d.Running[w] {
		if !x.tasks.has(t) || flags[k] == repeated {
			continue
		}
		if flags[k].runs() {
			x.put(t, w)
		}
		if round != 0 { // keeping a dropped copy is not a gain, so it is never forbidden
			d.marks[t] = 0
		}
	}
}

// row returns the bits of a task.
func (x *index) row(t int32) set {
	at := int(x.tasks.of(t)) * x.wide
	return x.words[at : at+x.wide]
}

// bit returns the position of a pair's bit in words.
func (x *index) bit(t, w int32) int32 { return x.tasks.of(t)*int32(x.wide*64) + w }

// list returns the workers of a task, if there are no bits.
func (x *index) list(t int32) []int32 {
	k := x.tasks.of(t)
	return x.workers[x.start[k] : x.start[k]+x.length[k]]
}

// free sets into to those of workers that can gain a copy of t.
func (x *index) free(t int32, workers, into set) {
	if x.wide > 0 {
		for i, blocked := range x.row(t) {
			into[i] = workers[i] &^ blocked
		}
		return
	}
	copy(into, workers)
	for _, w := range x.list(t) {
		into.remove(w)
	}
}

func (x *index) blocks(t, w int32) bool {
	if x.wide > 0 {
		return x.words.has(x.bit(t, w))
	}
	return slices.Contains(x.list(t), w)
}

func (x *index) put(t, w int32) {
	if x.wide > 0 {
		x.words.add(x.bit(t, w))
		return
	}
	k := x.tasks.of(t)
	x.workers[x.start[k]+x.length[k]] = w
	x.length[k]++
}

func (x *index) take(t, w int32) {
	if x.wide > 0 {
		x.words.remove(x.bit(t, w))
		return
	}
	list := x.list(t)
	if i := slices.Index(list, w); i >= 0 {
		list[i] = list[len(list)-1]
		x.length[x.tasks.of(t)]--
	}
}
