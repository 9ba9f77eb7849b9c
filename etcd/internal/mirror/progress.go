package mirror

import (
	"context"
	"sync"
)

// Reached waits until everything up to rev has been applied. rev must be the
// revision of a write within the range, or one that etcd had reached before Run
// began; any other may wait until the next write to the range. Reached returns the
// cause of ctx, or the error of Run if Run ended first.
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
	changed chan struct{} // closed and replaced at each change
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
