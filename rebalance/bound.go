package rebalance

// The lower bound on the starts (P8).

import "math"

// lowerBound computes the bound.
type lowerBound struct {
	*draft
	loads []int32 // the initial loads, by worker, if there are constraints
	grown int     // how many copies the quarantined workers gain
}

// begin records the initial loads.
func (b *lowerBound) begin() {
	if b.isConstrained() {
		b.loads = append(b.loads[:0], b.load...)
	}
}

// set computes the lower bound on adds, as far as it is known before they are chosen:
// each missing copy needs one, and so does each copy beyond a worker's limit. After
// relieve no choice of drops needs fewer.
func (b *lowerBound) set() {
	b.grown = len(b.changes)
	b.plan.LowerBound = b.grown
	for _, x := range b.pending {
		b.plan.LowerBound += int(x.copies)
	}
	for _, w := range b.open {
		b.plan.LowerBound += int(max(0, -b.room(w)))
	}
}

// finish completes the bound when all starts are chosen. exchanged is the number of
// copies that cost two starts.
func (b *lowerBound) finish(exchanged int) {
	if b.isConstrained() {
		b.plan.LowerBound = b.plain()
	} else {
		b.plan.LowerBound += exchanged
	}
}

// plain returns the lower bound that holds under any constraints: a start for each
// copy that a task gains, and, if the spread ends even, one for each copy that an open
// worker lacks for that.
func (b *lowerBound) plain() int {
	gained := b.missing
	least, most := int32(math.MaxInt32), int32(0)
	lacking, above, n := 0, 0, 0
	for _, w := range b.open {
		least, most = min(least, b.load[w]), max(most, b.load[w])
		n += int(b.load[w])
	}
	if most-least > 1 {
		return b.grown + gained
	}
	for _, w := range b.open {
		before := b.loads[w]
		lacking += int(max(0, least-before))
		if before > least {
			above++
		}
	}
	extra := n - int(least)*len(b.open)
	return b.grown + max(gained, lacking+max(0, extra-above))
}
