package mirror

// How far a mirror is, and waiting for that.

import (
	"context"
	"sync"
)

// Reached waits until everything up to rev has been applied. rev is the revision
// of a write within the range, or one that etcd was at before Run began: others
// may take until the next write to the range. It returns ctx's cause, or, where
// Run ended before, that of Run.
func (m *Mirror) Reached(ctx context.Context, rev int64) error {
	for {
		reached, changed, err := m.reached.now()
		switch {
		case err != nil:
			return err
		case reached >= rev:
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

type progress struct {
	mu      sync.Mutex
	rev     int64
	err     error
	changed chan struct{} // closed, and replaced, at every change
}

func (p *progress) now() (rev int64, changed <-chan struct{}, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rev, p.changed, p.err
}

func (p *progress) revision() int64 {
	rev, _, _ := p.now()
	return rev
}

func (p *progress) begin()            { p.set(0, nil) }
func (p *progress) advance(rev int64) { p.set(rev, nil) }
func (p *progress) end(err error)     { p.set(0, err) }

func (p *progress) set(rev int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rev, p.err = rev, err
	close(p.changed)
	p.changed = make(chan struct{})
}
