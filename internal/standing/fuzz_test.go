package standing_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/standing"
)

// FuzzBook keeps a book beside one that is kept naively: a list of failures,
// looked through again and again.
func FuzzBook(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{1, 0x10, 1, 0x51, 1, 0x92, 9, 0, 3, 0x11, 1, 0x10})
	f.Add([]byte("terms in which starts fail, workers leave and tasks are dropped"))
	f.Fuzz(func(t *testing.T, data []byte) {
		next := func() byte {
			if len(data) == 0 {
				return 0
			}
			b := data[0]
			data = data[1:]
			return b
		}
		book, slow := standing.New(), new(ledger)
		for term := uint64(1); len(data) > 0; term++ {
			switch op := next(); op % 8 {
			case 0:
				gone := uint64(next() % bookWorkers)
				book.ForgetWorkers(func(w uint64) bool { return w == gone })
				slow.forget(func(p standing.Pair) bool { return p.Worker == gone })
				slow.reopen(gone)
			case 1:
				gone := int32(next() % bookTasks)
				book.ForgetTasks(func(task int32) bool { return task == gone })
				slow.forget(func(p standing.Pair) bool { return p.Task == gone })
			case 2:
				term += uint64(next())
			case 3:
				p := pair(int32(next()%bookTasks), uint64(next()%bookWorkers))
				book.Succeeded(p)
				slow.succeeded(p)
			case 4:
				book.Expire(term)
				slow.forget(func(p standing.Pair) bool { return slow.find(p).Until+standing.Lifetime < term })
			case 5:
				book = book.Clone()
			default:
				starts := make([]standing.Start, 1+op>>4)
				for i := range starts {
					b := next()
					starts[i] = standing.Start{Pair: pair(int32(b%bookTasks), uint64(b/bookTasks%bookWorkers))}
					if b>>7 == 0 {
						starts[i].Err = errors.New("no")
					}
				}
				starts = slices.CompactFunc(starts, func(a, b standing.Start) bool { return a.Pair == b.Pair })
				busy, seen := next(), next()
				runs := func(w uint64) bool { return busy>>w&1 != 0 }
				was := func(task int32) bool { return seen>>task&1 != 0 }
				book.Learn(term, starts, runs, was)
				slow.learn(term, starts, runs, was)
			}
			slow.compare(t, book, term)
		}
	})
}

const (
	bookTasks   = 6
	bookWorkers = 5
)

// ledger is the naive book.
type ledger struct {
	pairs  []*entry
	closed []*entry // by worker; Task is of no meaning
}

type entry struct {
	standing.Pair
	standing.Record
	blamed bool
}

func (l *ledger) find(p standing.Pair) *entry {
	for _, e := range l.pairs {
		if e.Pair == p {
			return e
		}
	}
	return nil
}

func (l *ledger) shut(worker uint64) *entry {
	for _, e := range l.closed {
		if e.Worker == worker {
			return e
		}
	}
	return nil
}

func (l *ledger) forget(gone func(standing.Pair) bool) {
	l.pairs = slices.DeleteFunc(l.pairs, func(e *entry) bool { return gone(e.Pair) })
}

func (l *ledger) reopen(worker uint64) {
	l.closed = slices.DeleteFunc(l.closed, func(e *entry) bool { return e.Worker == worker })
}

func (l *ledger) elsewhere(p standing.Pair) bool {
	return slices.ContainsFunc(l.pairs, func(e *entry) bool { return e.Task == p.Task && e.Worker != p.Worker })
}

func (l *ledger) succeeded(p standing.Pair) {
	l.forget(func(q standing.Pair) bool { return q == p })
	if l.shut(p.Worker) != nil {
		l.reopen(p.Worker)
		l.pairs = slices.DeleteFunc(l.pairs, func(e *entry) bool { return e.Worker == p.Worker && e.blamed })
	}
}

func (l *ledger) learn(term uint64, starts []standing.Start, runs func(uint64) bool, seen func(int32) bool) {
	for _, s := range starts {
		if s.Err == nil {
			l.succeeded(s.Pair)
		}
	}
	punished := make(map[uint64]bool)
	for _, s := range starts {
		if s.Err == nil {
			continue
		}
		e := l.find(s.Pair)
		if e == nil {
			e = &entry{Pair: s.Pair}
			l.pairs = append(l.pairs, e)
		}
		fail(&e.Record, term, s.Err)
		e.blamed = !runs(s.Worker) || seen(s.Task) && !l.elsewhere(s.Pair)
		well := slices.ContainsFunc(starts, func(o standing.Start) bool { return o.Worker == s.Worker && o.Err == nil })
		if !e.blamed || well || punished[s.Worker] {
			continue
		}
		punished[s.Worker] = true
		w := l.shut(s.Worker)
		if w == nil {
			w = &entry{Pair: pair(0, s.Worker)}
			l.closed = append(l.closed, w)
		}
		fail(&w.Record, term, s.Err)
	}
}

// fail puts off the next try by 1, 2, 4, … terms, 64 at most.
func fail(r *standing.Record, term uint64, err error) {
	wait := uint64(1)
	for range r.Failures {
		wait = min(64, 2*wait)
	}
	r.Failures, r.Until, r.Err = r.Failures+1, term+1+wait, err
}

func (l *ledger) compare(t *testing.T, book *standing.Book, term uint64) {
	require.Equal(t, len(l.pairs)+len(l.closed) == 0, book.Empty())
	var avoided []standing.Pair
	for w := range uint64(bookWorkers) {
		e := l.shut(w)
		closed, probation := book.Closed(w, term)
		require.Equal(t, e != nil, closed, "worker %d", w)
		require.Equal(t, e != nil && e.Until <= term, probation, "worker %d", w)
		concerns := false
		for task := range int32(bookTasks) {
			p := pair(task, w)
			e := l.find(p)
			concerns = concerns || e != nil
			require.Equal(t, e != nil, book.Has(p), "%v", p)
			require.Equal(t, e != nil && e.Until > term, book.Avoided(p, term), "%v", p)
			require.Equal(t, l.elsewhere(p), book.FailedElsewhere(p), "%v", p)
			if e != nil && e.Until > term {
				avoided = append(avoided, p)
			}
		}
		require.Equal(t, concerns, book.Concerns(w))
	}
	for p, r := range book.Pairs(term) {
		require.NotEmpty(t, avoided, "%v", p)
		require.Equal(t, avoided[0], p)
		e := l.find(p)
		require.Equal(t, []any{e.Failures, e.Until, e.Err}, []any{r.Failures, r.Until, r.Err})
		avoided = avoided[1:]
	}
	require.Empty(t, avoided)
	var shut []uint64
	for w, r := range book.Workers() {
		shut = append(shut, w)
		require.Equal(t, l.shut(w).Until, r.Until)
	}
	require.Len(t, shut, len(l.closed))
	require.IsIncreasing(t, append([]uint64{0}, add1(shut)...))
}

func add1(all []uint64) []uint64 {
	for i := range all {
		all[i]++
	}
	return all
}
