package memory

// The switches of the network.

import (
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// mode is what a call to a worker meets.
type mode uint8

const (
	healthy mode = iota
	cut
	hanging
	sticking
	slow
	late
	holding
	answerless
)

// way is the way to one worker, and back. The zero way is healthy.
type way struct {
	mode    mode
	delay   time.Duration   // slow, late
	changed chan struct{}   // closed by the next switch; nil if healthy
	held    *sync.WaitGroup // holding: the writes held, until they have landed
}

// Cut cuts the workers named off: calls fail at once with [ErrCut], and do not
// reach them, while their tasks run on.
func (c *Cluster[W, T]) Cut(names ...W) { c.set(way{mode: cut}, names) }

// Hang has calls to the workers named wait until their contexts end. They do
// not reach the worker, unless it is healed before.
func (c *Cluster[W, T]) Hang(names ...W) { c.set(way{mode: hanging}, names) }

// Stick has calls to the workers named wait and ignore their contexts, as no
// Communicator should. They reach the worker when it is healed, then without a
// deadline, and fail if it is killed.
func (c *Cluster[W, T]) Stick(names ...W) { c.set(way{mode: sticking}, names) }

// Slow has calls reach the workers named d later, if their callers have not
// given up by then.
func (c *Cluster[W, T]) Slow(d time.Duration, names ...W) { c.set(way{mode: slow, delay: d}, names) }

// Late is as Slow, but a call reaches the worker even if its caller has given
// up; it then has no deadline any more.
func (c *Cluster[W, T]) Late(d time.Duration, names ...W) { c.set(way{mode: late, delay: d}, names) }

// LoseAnswers has calls reach the workers named, which do what they are told,
// while the callers hear nothing until their contexts end.
func (c *Cluster[W, T]) LoseAnswers(names ...W) { c.set(way{mode: answerless}, names) }

// HoldWrites holds back every Add, Remove and Apply on its way to one worker,
// while List still reaches it. release, or any other switch, lets them go, also
// those whose callers have given up; release returns when the worker has
// answered them, or was killed. It heals the worker only if no other switch
// has been thrown since.
func (c *Cluster[W, T]) HoldWrites(name W) (release func()) {
	held := new(sync.WaitGroup)
	c.set(way{mode: holding, held: held}, []W{name})
	return func() {
		c.mu.Lock()
		if w := c.ways[name]; w.held == held {
			close(w.changed)
			delete(c.ways, name)
		}
		c.mu.Unlock()
		held.Wait()
	}
}

// Heal puts the network right again for the workers named, or for all if none
// is.
func (c *Cluster[W, T]) Heal(names ...W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(names) == 0 {
		for _, w := range c.ways {
			close(w.changed)
		}
		clear(c.ways)
	}
	for _, name := range names {
		if w, ok := c.ways[name]; ok {
			close(w.changed)
			delete(c.ways, name)
		}
	}
}

// set throws a switch.
func (c *Cluster[W, T]) set(w way, names []W) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		if old, ok := c.ways[name]; ok {
			close(old.changed)
		}
		w.changed = make(chan struct{})
		c.ways[name] = w
	}
}

// Refuse has f asked before any List, Add or Remove that has reached a worker,
// be it within an Apply or not, is carried out. Where f returns an error, that
// is the worker's answer, and nothing is done. Task is the zero value for
// OpList. f is called from many goroutines at once. A nil f, as at the
// beginning, refuses nothing.
func (c *Cluster[W, T]) Refuse(f func(op orchestrator.Op, name W, task T) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = f
}
