package memory

import (
	"context"
	"errors"
	"time"

	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/wire"
)

// ErrInjected is for faults: the call is lost.
var ErrInjected = errors.New("injected fault")

// Fault is what happens to a call. The zero Fault is none.
type Fault struct {
	// Before is how long the call takes to reach the table, and After how long its answer
	// takes.
	Before, After time.Duration
	// Between is how long other calls may pass between two steps of a piecewise table.
	Between time.Duration
	// Err: the call fails with it, and does not reach the table.
	Err error
	// Again: the call reaches the table this long after it would have, also if it has not
	// failed.
	Again time.Duration
}

// SetFaults sets the function that chooses the fault of each call; nil: none. Of a Read it
// is given the Query. It is called from many goroutines.
func (t *Table) SetFaults(f func(wire.Update) Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = f
}

// Sync is that of wire.Backend, with faults.
func (t *Table) Sync(ctx context.Context, u wire.Update) (wire.View, error) {
	u.Member.Settings = u.Member.Settings.Normalized()
	return t.call(ctx, u, func(between func()) (wire.View, error) { return t.sync(u, between) })
}

// Read is that of wire.Backend, with faults.
func (t *Table) Read(ctx context.Context, q wire.Query) (wire.View, error) {
	return t.call(ctx, wire.Update{Query: q}, func(between func()) (wire.View, error) { return t.read(q, between) })
}

func (t *Table) call(ctx context.Context, u wire.Update, do func(between func()) (wire.View, error)) (wire.View, error) {
	t.mu.Lock()
	choose := t.faults
	t.mu.Unlock()
	var f Fault
	if choose != nil {
		f = choose(u)
	}
	between := func() {
		if t.piecewise {
			t.mu.Unlock()
			backoff.Sleep(context.Background(), f.Between)
			t.mu.Lock()
		}
	}
	reach := func() (wire.View, error) {
		t.mu.Lock()
		defer t.mu.Unlock()
		return do(between)
	}
	if !backoff.Sleep(ctx, f.Before) {
		return wire.View{}, context.Cause(ctx)
	}
	if f.Again > 0 {
		time.AfterFunc(f.Again, func() { _, _ = reach() })
	}
	if f.Err != nil {
		return wire.View{}, f.Err
	}
	v, err := reach()
	if !backoff.Sleep(ctx, f.After) {
		return wire.View{}, context.Cause(ctx)
	}
	return v, err
}

// Saved is a copy of a table.
type Saved struct{ s state }

// Save returns a copy of all that the table stores.
func (t *Table) Save() Saved {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Saved{t.now.clone()}
}

// Restore sets the table back to a copy, as a failover or a restored backup does.
// Each Sync can tell that it is a copy.
func (t *Table) Restore(s Saved) {
	t.replace(func(now *state) { *now, t.other = s.s.clone(), true })
}

// Truncate makes the table empty. It is then a new one, and not confirmed.
func (t *Table) Truncate() {
	t.replace(func(now *state) {
		revision := now.revision
		*now = empty()
		now.revision = revision + 1
	})
}

// Edit changes records by hand: it replaces them by garbage, by records from the future, or
// deletes them. The number of orders that the table keeps does not follow.
func (t *Table) Edit(f func(*Records)) {
	t.replace(func(s *state) {
		s.revision++
		f(&s.Records)
		for _, m := range s.Members {
			m.at, m.reportedAt = s.revision, s.revision
			for task, o := range m.Orders {
				m.Orders[task] = Order{o.Order, s.revision}
			}
			if n := m.count(); t.piecewise && n != m.toRun {
				m.toRun, m.reading, m.epoch, m.version = n, "", 0, 0
			}
		}
	})
}

// replace changes the state, and wakes everybody.
func (t *Table) replace(f func(now *state)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(&t.now)
	t.wake()
}
