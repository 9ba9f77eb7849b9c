package simulator

// The schedule: scheduled actions of the world, which one goroutine runs. Lanes and
// random draws make runs repeatable.

import (
	"context"
	"slices"
	"sort"
	"time"
)

// schedule holds the scheduled actions, ordered by time. Of those at the same time, the ones
// added earlier come first.
type schedule []scheduledAction

// scheduledAction is an action of the world and its time.
type scheduledAction struct {
	at time.Time
	do func()
}

// in schedules an action after d, at the next instant of the world's lane.
func (s *schedule) in(d time.Duration, do func()) {
	at := time.Now().Add(worldLane.after(max(d, period)))
	i := sort.Search(len(*s), func(i int) bool { return (*s)[i].at.After(at) })
	*s = slices.Insert(*s, i, scheduledAction{at, do})
}

// do runs the next action.
func (s *schedule) do() {
	next := (*s)[0]
	*s = (*s)[1:]
	next.do()
}

// period is the distance between the instants of one actor, in nanoseconds. All
// timeouts are multiples of it. It is far below the ten-thousandth of a timeout by
// which a call's context ends before its term cancels the call.
const period = 1 << 15

// lane identifies the instants of an actor: the times whose remainder modulo period
// is the lane.
type lane int

// The lanes. There are at most maxWorkers names of workers. Leaders share lanes only
// with leaders that ended long before.
const (
	maxWorkers = 256
	leaderLoop = 16
	// apart separates the instants at which answers reach a leader from those at
	// which its terms begin. So the end of a listing that skips the slowest workers,
	// at four times the time taken by half of them, never coincides with another
	// answer.
	apart = 4

	worldLane   lane = 0
	loopLanes   lane = 1                                            // a leader between its terms
	stopLanes        = loopLanes + leaderLoop*apart                 // a worker whose task stops slowly
	leaderLanes      = (stopLanes + maxWorkers + apart) &^ 3        // answers reach a leader
	workerLanes      = leaderLanes + leaderLoop*maxWorkers*apart    // calls reach a worker
	_           lane = period - workerLanes - leaderLoop*maxWorkers // compiles only if the lanes fit into a period
)

func loopLane(leader int) lane { return loopLanes + lane(leader%leaderLoop*apart) }

func stopLane(worker int) lane { return stopLanes + lane(worker) }

func leaderLane(leader, worker int) lane {
	return leaderLanes + lane((leader%leaderLoop*maxWorkers+worker)*apart)
}

func workerLane(leader, worker int) lane {
	return workerLanes + lane(leader%leaderLoop*maxWorkers+worker)
}

// after returns the time from now to the lane's first instant that is at least d
// away.
func (l lane) after(d time.Duration) time.Duration {
	at := time.Now().Add(d).UnixNano()
	return d + time.Duration((int64(l)-at%period+period)%period)
}

// await waits for the lane's next instant, or returns the cause of ctx when ctx ends.
func (l lane) await(ctx context.Context) error {
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

// wait waits for the lane's next instant.
func (l lane) wait() { _ = l.await(context.Background()) }

// roundDown rounds d down to a multiple of ten periods, so that a tenth of a timeout is
// a multiple of apart.
func roundDown(d time.Duration) time.Duration { return d / (10 * period) * (10 * period) }

// random is a random generator for one purpose. Draws for different purposes are
// independent, so leaving out one changes no other.
type random struct{ state uint64 }

// newRandom returns the generator of a seed for a purpose.
func newRandom(seed uint64, purpose string, numbers ...uint64) random {
	rnd := random{seed}
	rnd.next()
	rnd.text(purpose)
	for _, n := range numbers {
		rnd.state ^= n
		rnd.next()
	}
	return rnd
}

// text mixes in a name.
func (r *random) text(s string) {
	const prime = 0x100000001b3
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * prime
	}
	r.state ^= h
	r.next()
}

// next returns 64 random bits, by splitmix64.
func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	z ^= z >> 31
	r.state ^= z << 1
	return z
}

// upTo returns a number from 0 to n-1.
func (r *random) upTo(n int) int { return int(r.next() % uint64(n)) }

// oneTo returns a number from 1 to n.
func (r *random) oneTo(n int) int { return 1 + r.upTo(n) }

// unit returns a number in [0, 1).
func (r *random) unit() float64 { return float64(r.next()>>11) / (1 << 53) }

// chance is true with probability p.
func (r *random) chance(p float64) bool { return r.unit() < p }

// between returns a duration from least up to most.
func (r *random) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.unit()*float64(most-least))
}

// choose returns one of the choices.
func choose[V any](rnd *random, choices ...V) V { return choices[rnd.upTo(len(choices))] }
