package grpc

// How a manager runs: it serves, waits for whom it knows, and leads.

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/grpc"
)

// Run serves workers on l, which it closes, and runs terms, until ctx ends. It
// returns ctx's cause, once the calls and moves that a term has begun are carried
// through, everything is saved, and nothing of it is left but the store, which is
// the caller's to close. It is called once.
//
// No term is run before each member that is known from before has been heard
// again, or one of its leases has passed. Who is waited for, and until when, is
// logged, and can be seen in [Manager.Members].
//
// Run fails with [orchestrator.ErrDeposed] if two workers have seen a later epoch,
// which means that there is another manager. One worker may be compromised: it
// counts as one that cannot be called, and its tasks stay held. Run also fails
// with what the store has failed with, because a manager tells only what is in the
// store, and with what serving on l has failed with.
func (m *Manager) Run(ctx context.Context, l net.Listener) error {
	if absent(l) {
		return fmt.Errorf("%w: Manager.Run: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	defer func() { _ = l.Close() }() // the server has closed it, if there was one
	if !m.begun.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Manager.Run is called once", orchestrator.ErrInvalid)
	}

	leading, end := context.WithCancelCause(ctx)
	defer end(nil)
	// What goes on until the last term has ended.
	beyond, quit := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer func() {
		quit()
		parts.Wait()
		m.ledger.close()
		_ = m.workers.Close() // it never fails
	}()
	server, accepting, err := m.settings.newServer(l, roleWorker, grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(m.refused.count),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.ForceServerCodecV2(requestCodec{}),
		grpc.StaticStreamWindowSize(maxRequest), grpc.StaticConnWindowSize(2*maxRequest))
	if err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	orchestratorv1.RegisterManagerServer(server, &counter{Manager: m, probes: newProber(&m.settings)})
	for _, member := range m.ledger.catalog.members() {
		m.connect(member.Worker, member.Address)
		m.workers.believe(member.Worker)
	}
	m.ledger.start()
	parts.Go(func() { m.ledger.expire(beyond) })
	parts.Go(func() {
		select {
		case <-m.ledger.broken:
			end(m.ledger.failure())
		case <-beyond.Done():
		}
	})
	parts.Go(func() {
		if err := server.Serve(accepting); err != nil && beyond.Err() == nil {
			end(fmt.Errorf("serve on %s: %w", l.Addr(), err))
		}
	})
	parts.Go(func() {
		<-beyond.Done()
		stop(server)
	})
	err = m.lead(leading)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("run manager: %w", err)
}

// lead runs terms, as soon as it may.
func (m *Manager) lead(ctx context.Context) error {
	m.announce()
	select {
	case <-m.ledger.ready:
	case <-m.ledger.broken:
		return m.ledger.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// That the last lease has run out is decided; the term has to know it too.
	if err := m.ledger.do(ctx, func(*book, time.Time) error { return nil }); err != nil {
		return err
	}
	m.log.Info("leading", "epoch", m.ledger.epoch)
	m.leading.Store(true)
	defer m.leading.Store(false)
	return m.orch.Run(ctx, m.settings.interval)
}

// announce logs who is waited for.
func (m *Manager) announce() {
	const shown = 20
	var names []string
	var latest time.Time
	waiting := 0
	for _, member := range m.Members() {
		if !member.Heard.IsZero() {
			continue
		}
		if waiting++; waiting <= shown {
			names = append(names, member.Name)
		}
		if member.Until.After(latest) {
			latest = member.Until
		}
	}
	if waiting > 0 {
		m.log.Info("waiting for the members from before, no term is run until they are heard or their leases have run out",
			"workers", waiting, "first", names, "until", latest)
	}
}
