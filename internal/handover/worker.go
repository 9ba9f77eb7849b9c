package handover

// worker is a worker as a source and as a receiver.
type worker struct {
	continuing queue // changes whose second write or give-back goes here
	// fresh and last hold the changes whose first write goes here, without and with
	// Change.Last.
	fresh, last pending

	busy       bool // a call is in flight, or has outlived its deadline
	listed     bool // in Machine.ready
	waits      bool // in Machine.later
	creditable bool // in Machine.creditable
	timedOut   bool

	// As a receiver:
	parked   queue // moves that wait for credit
	underway int   // moves to here that have begun and are not decided
	credit   int   // starts acknowledged since the last failed move
	early    int   // those that the call in flight acknowledged; they add to credit when it has returned
	blocked  bool
	first    int // how many moves may be under way without credit; 0: one, because one has failed
}

// hasCredit reports whether one more move to here may begin. A worker that has not
// acknowledged a start yet must be idle: if its call hung, the task of the move would be
// stopped in vain.
func (w *worker) hasCredit() bool {
	if w.credit == 0 && (w.busy || !w.fresh.single.empty()) {
		return false
	}
	return w.underway < w.allowed()
}

// allowed returns how many moves to here may be under way.
func (w *worker) allowed() int { return max(w.first, 1) + w.credit }

// pending holds changes that have not begun.
type pending struct {
	single queue // stops and starts
	moves  queue
}

func (p *pending) empty() bool { return p.single.empty() && p.moves.empty() }

// queueOf returns the queue in which a change waits.
func (w *worker) queueOf(c *change) *pending {
	if c.Last {
		return &w.last
	}
	return &w.fresh
}

// queue is a first-in first-out list of indices.
type queue struct {
	items []int32
	head  int
}

func (q *queue) push(i int32) {
	// Once the front half is used up, the rest moves there: amortized O(1).
	if q.head > 16 && q.head > len(q.items)/2 {
		q.items = q.items[:copy(q.items, q.items[q.head:])]
		q.head = 0
	}
	q.items = append(q.items, i)
}

func (q *queue) pop() int32 {
	i := q.items[q.head]
	q.head++
	return i
}

func (q *queue) front() int32 { return q.items[q.head] }
func (q *queue) len() int     { return len(q.items) - q.head }
func (q *queue) empty() bool  { return q.head == len(q.items) }
