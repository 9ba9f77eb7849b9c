package model

import "cmp"

// store is the kind of a backend.
type store uint8

const (
	atomic    store = iota // a batch takes effect in one guarded step (O4)
	piecewise              // each order record is written by compare-and-swap (O5)
)

// option is what a configuration adds to the plain protocol.
type option uint32

const (
	slowSyncs    option = 1 << iota // a Sync may be under way for any time
	lateSyncs                       // a Sync that was given up may take effect later
	bareSyncs                       // Syncs without a report
	heartbeats                      // death is observed and evictions are under way for any time
	refusals                        // a member may refuse a task
	lateOrders                      // a batch may arrive a second time
	lowEpochs                       // an epoch may be lower than one that was lost
	partialLoss                     // a loss takes any of the records
	fallsBack                       // piecewise: a loss restores an earlier state, as in an atomic store
	slowReads                       // the answer of a reading may be acted on later
	reportsFirst                    // a leader reads reports before orders
	ordersFirst                     // a leader reads orders before reports
	adoption                        // atomic: a new leader sends the first batch of O6
	tokens                          // tokens are checked
	liveness                        // everything must come to run, without faults from any state
	plannerOnly                     // leaders order only what is missing; no fault but losses
)

// config is one configuration: the bounds of a search, and what is switched off.
type config struct {
	name      string
	store     store
	options   option
	off       ruleSet
	ids       int // members that may exist at the same time: 2
	processes int // members that may live at the same time: 2
	tasks     int // 1
	leaders   int // elections: 2
	batches   int // orders of one leader: 3
	losses    int // of the table: 0
	instances int // of each task: 1
	surplus   int // instances more during a move (StartThenStop): 0
	effort    effort
	states    int     // of the complete search, if nothing is found
	finding   finding // that is expected
	steps     int     // of the finding
}

// effort is when a configuration is searched.
type effort uint8

const (
	inCI   effort = iota // the tests with -model.all
	always               // all tests
	large                // the tests with -model.large
)

// bounded returns c with the default for each bound that is zero.
func (c config) bounded() *config {
	c.ids, c.processes, c.tasks = cmp.Or(c.ids, 2), cmp.Or(c.processes, 2), cmp.Or(c.tasks, 1)
	c.leaders, c.batches, c.instances = cmp.Or(c.leaders, 2), cmp.Or(c.batches, 3), cmp.Or(c.instances, 1)
	return &c
}

func (c *config) has(o option) bool { return c.options&o != 0 }

func (c *config) on(r rule) bool { return c.off&(1<<r) == 0 }

// adopts reports whether a new leader sends the first batch of O6.
func (c *config) adopts() bool {
	return (c.store == piecewise || c.has(adoption)) && c.on(firstBatch)
}

// without returns c with rules switched off, and what the search then finds.
func (c config) without(e effort, finding finding, steps int, off ...rule) config {
	for _, r := range off {
		c.off |= 1 << r
		c.name += ", without " + r.String()
	}
	c.effort, c.finding, c.steps = e, finding, steps
	return c
}
