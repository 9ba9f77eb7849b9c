package backendtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/f8949c05/orchestrator/replica"
)

// testLead calls replica.Lead in two processes. The first leader resigns, and the other one follows.
func testLead(k *kit) {
	type process struct {
		elected chan uint64
		ended   chan error
	}
	ctx, end := context.WithTimeout(k.Context(), timeout)
	defer end()
	var leads atomic.Int32
	next, resign := make(chan *process, 2), make(chan struct{})
	for i := range 2 {
		p, b := &process{make(chan uint64, 1), make(chan error, 1)}, k.store.Open()
		lease := replica.MinLease
		if d, ok := b.(replica.Describer); ok {
			lease = max(lease, d.Traits().Least)
		}
		go func() {
			p.ended <- replica.Lead(ctx, b, func(ctx context.Context, epoch uint64) error {
				if leads.Add(1) > 1 {
					return errors.New("two processes lead at once")
				}
				defer leads.Add(-1)
				p.elected <- epoch
				next <- p
				select {
				case <-resign:
				case <-ctx.Done():
				}
				return nil
			}, replica.WithName(fmt.Sprint("p", i)), replica.WithLease(lease, lease/10), replica.WithLogger(slog.New(slog.DiscardHandler)))
		}()
	}
	leader := func(what string) *process {
		select {
		case p := <-next:
			return p
		case <-ctx.Done():
			k.Fatalf("%s: nobody leads within %v", what, timeout)
			return nil
		}
	}
	first := leader("at the start")
	resign <- struct{}{}
	k.equal(error(nil), <-first.ended, "a resignation")
	began := time.Now()
	second := leader("after a resignation")
	k.true(second != first && time.Since(began) < 5*time.Second, "the next leader came %v after a resignation", time.Since(began))
	before, after := <-first.elected, <-second.elected
	k.true(after > before, "epoch %d was led after %d", after, before)
	end()
	k.equal(error(nil), <-second.ended, "the end of the context")
}
