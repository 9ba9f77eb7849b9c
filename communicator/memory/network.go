package memory

// The switches of the network.

import (
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
)

// mode is a switch setting.
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

// way is the state of the network between the caller and one worker. The zero way is
// healthy.
type way struct {
	mode    mode
	delay   time.Duration   // slow, late
	changed chan struct{}   // closed by the next switch; nil if healthy
	held    *sync.WaitGroup // holding: done when the held writes have been answered
}

// Cut cuts off the workers named. Calls fail immediately with [ErrCut] and do not
// reach the workers. Their tasks keep running.
func (c *Cluster[W, T]) Cut(names ...W) { c.set(way{mode: cut}, names) }

// Hang makes calls to the workers named wait until their contexts end. The calls do
// not reach the worker, unless it is healed first.
func (c *Cluster[W, T]) Hang(names ...W) { c.set(way{mode: hanging}, names) }

// Stick makes calls to the workers named wait and ignore their contexts, which no
// Communicator should do. The calls reach the worker without a deadline when it is
// healed, and fail if it is killed.
func (c *Cluster[W, T]) Stick(names ...W) { c.set(way{mode: sticking}, names) }

// Slow makes calls reach the workers named after d, if their callers still wait.
func (c *Cluster[W, T]) Slow(d time.Duration, names ...W) { c.set(way{mode: slow, delay: d}, names) }

// Late is like Slow, but a call reaches the worker even if its caller no longer
// waits. It then has no deadline.
func (c *Cluster[W, T]) Late(d time.Duration, names ...W) { c.set(way{mode: late, delay: d}, names) }

// LoseAnswers makes calls reach the workers named and take effect, but their callers
// wait until their contexts end.
func (c *Cluster[W, T]) LoseAnswers(names ...W) { c.set(way{mode: answerless}, names) }

// HoldWrites holds back every Add, Remove and Apply on its way to one worker; List
// still reaches it. release, or any other switch, delivers the held calls, including
// those whose callers no longer wait. release returns when the worker has answered
// them or was killed. It heals the worker only if no other switch was set since.
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

// Heal restores the network for the workers named, or for all if none are named.
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

// set applies a switch setting.
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

// Refuse sets a function f to call before any List, Add or Remove that has reached a
// worker, including those within an Apply. If f returns an error, it is the worker's
// answer and nothing is done. The task is the zero value for OpList. f is called
// from many goroutines at the same time. A nil f, the default, refuses nothing.
func (c *Cluster[W, T]) Refuse(f func(op orchestrator.Op, name W, task T) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = f
}
