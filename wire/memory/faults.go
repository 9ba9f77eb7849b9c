package memory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/wire"
)

// ErrInjected is wrapped by the errors that faults make up.
var ErrInjected = errors.New("injected fault")

// Call describes a call for which a fault is chosen.
type Call struct {
	Self      uint64
	Name      string // of the member; empty for a Read
	Heartbeat uint64 // 0 for a Read
}

// Fault is what happens to a call. The zero Fault is none.
type Fault struct {
	// Before is how long the call takes to reach the table, and After how long its answer
	// takes.
	Before, After time.Duration
	// Between is how long other calls may pass between two steps of a piecewise table.
	Between time.Duration
	// Lost: the call does not reach the table. Refused: so, and the error says it.
	Lost, Refused bool
	// Unanswered: the caller waits until its context ends.
	Unanswered bool
	// Late: the call reaches the table this long after its caller was told that it failed.
	Late time.Duration
	// Again: the call reaches the table once more after this time.
	Again time.Duration
}

// SetFaults sets the function that chooses the fault of each call; nil: none. It is called
// from many goroutines.
func (t *Table) SetFaults(f func(Call) Fault) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = f
}

// Sync is that of wire.Backend, with faults.
func (t *Table) Sync(ctx context.Context, u wire.Update) (wire.View, error) {
	u.Member.Settings = u.Member.Settings.Normalized()
	c := Call{u.Self, u.Member.Name, u.Member.Heartbeat}
	return t.call(ctx, c, func(between func()) (wire.View, error) { return t.sync(u, between) })
}

// Read is that of wire.Backend, with faults.
func (t *Table) Read(ctx context.Context, q wire.Query) (wire.View, error) {
	return t.call(ctx, Call{Self: q.Self}, func(between func()) (wire.View, error) { return t.read(q, between) })
}

func (t *Table) call(ctx context.Context, c Call, do func(between func()) (wire.View, error)) (wire.View, error) {
	t.mu.Lock()
	choose := t.faults
	t.mu.Unlock()
	var f Fault
	if choose != nil {
		f = choose(c)
	}
	between := func() { _ = pause(context.Background(), f.Between) }
	if err := pause(ctx, f.Before); err != nil {
		return wire.View{}, err
	}
	switch {
	case f.Refused:
		return wire.View{}, fmt.Errorf("%w: %w", ErrInjected, orchestrator.ErrRejected)
	case f.Late > 0:
		time.AfterFunc(f.Late, func() { _, _ = do(between) })
		return wire.View{}, fmt.Errorf("%w: late", ErrInjected)
	case f.Lost:
		return wire.View{}, fmt.Errorf("%w: lost", ErrInjected)
	}
	v, err := do(between)
	if f.Again > 0 {
		time.AfterFunc(f.Again, func() { _, _ = do(between) })
	}
	if f.Unanswered {
		<-ctx.Done()
		return wire.View{}, context.Cause(ctx)
	}
	if gone := pause(ctx, f.After); gone != nil {
		return wire.View{}, gone
	}
	return v, err
}

// pause waits, and returns the cause if ctx ends first or has ended.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
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
		for id, m := range s.Members {
			s.at[key{member: id}] = s.revision
			s.see(m.Epoch, wire.MaxSeen)
		}
		for id, r := range s.Reports {
			s.at[key{member: id, report: true}] = s.revision
			s.see(r.Applied, wire.MaxSeen)
		}
		for id, orders := range s.Orders {
			for task, o := range orders {
				s.at[key{member: id, task: task}] = s.revision
				s.see(o.Version, wire.MaxEpoch)
			}
		}
		maps.DeleteFunc(s.stored, func(id uint64, _ receipt) bool { _, ok := s.Reports[id]; return !ok })
		for id := range s.guards {
			if n := s.toRun(id); t.piecewise && n != s.counts[id] {
				delete(s.guards, id)
				s.counts[id] = n
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
