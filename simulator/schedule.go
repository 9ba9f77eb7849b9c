package simulator

// The agenda: what the world does, and when. One goroutine works it off.

import (
	"container/heap"
	"context"
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

// period is how many nanoseconds apart the instants of one actor are. All
// timeouts are multiples of it, and it is far below the ten-thousandth of a
// timeout by which a call's context ends before the term gives up on it.
const period = 1 << 15

// lane is whose instants: those nanoseconds that leave it as the remainder.
type lane int

// The lanes. There are at most maxWorkers names of workers; leaders share lanes
// only with those long gone.
const (
	maxWorkers = 256
	leaderLoop = 16
	// apart separates the instants in which answers reach a leader from those in
	// which its terms begin: four times the time from the one to the other, when a
	// listing goes on without the slowest workers, never ends on another answer.
	apart = 4

	worldLane lane = 0
	loopLanes lane = 1                                         // a leader between its terms
	stopLanes      = loopLanes + leaderLoop*apart              // a worker whose task stops slowly
	nearLanes      = (stopLanes + maxWorkers + apart) &^ 3     // answers reach a leader
	farLanes       = nearLanes + leaderLoop*maxWorkers*apart   // calls reach a worker
	_         lane = period - farLanes - leaderLoop*maxWorkers // there is room
)

func loopLane(leader int) lane { return loopLanes + lane(leader%leaderLoop*apart) }

func stopLane(worker int) lane { return stopLanes + lane(worker) }

func nearLane(leader, worker int) lane {
	return nearLanes + lane((leader%leaderLoop*maxWorkers+worker)*apart)
}

func farLane(leader, worker int) lane {
	return farLanes + lane(leader%leaderLoop*maxWorkers+worker)
}

// after returns how long it is from now to the first instant of the lane that
// comes d later, or after that.
func (l lane) after(d time.Duration) time.Duration {
	at := time.Now().Add(d).UnixNano()
	return d + time.Duration((int64(l)-at%period+period)%period)
}

// await waits for the lane's next instant.
func (l lane) await() {
	if d := l.after(0); d > 0 {
		<-time.After(d)
	}
}

// awaitOr does the same, and returns early where ctx ends.
func (l lane) awaitOr(ctx context.Context) error {
	d := l.after(0)
	if d == 0 {
		return nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// whole returns d as a multiple of the period, and so a tenth of a timeout as a
// multiple of apart.
func whole(d time.Duration) time.Duration { return d / (10 * period) * (10 * period) }

// dice is a generator for one purpose. It is made anew for each: two draws for
// different purposes have nothing to do with one another, so that a run that
// leaves one of them out changes nothing else.
type dice struct{ state uint64 }

// throw returns the dice of a seed for a purpose.
func throw(seed uint64, purpose string, numbers ...uint64) dice {
	d := dice{seed}
	d.next()
	d.text(purpose)
	for _, n := range numbers {
		d.state ^= n
		d.next()
	}
	return d
}

// text mixes in a name.
func (d *dice) text(s string) {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	d.state ^= h
	d.next()
}

// next returns 64 random bits, by splitmix64.
func (d *dice) next() uint64 {
	d.state += 0x9e3779b97f4a7c15
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	d.state ^= z << 1
	return z
}

// upTo returns a number from 0 to n-1.
func (d *dice) upTo(n int) int { return int(d.next() % uint64(n)) }

// oneTo returns a number from 1 to n.
func (d *dice) oneTo(n int) int { return 1 + d.upTo(n) }

// unit returns a number in [0, 1).
func (d *dice) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// chance is true with probability p.
func (d *dice) chance(p float64) bool { return d.unit() < p }

// between returns a duration from least up to most.
func (d *dice) between(least, most time.Duration) time.Duration {
	return least + time.Duration(d.unit()*float64(most-least))
}

// among returns one of the choices.
func among[V any](d *dice, choices ...V) V { return choices[d.upTo(len(choices))] }
