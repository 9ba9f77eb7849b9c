package manager

// Manager.Run: serve workers, wait for the known members, and run terms.

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/grpc"
)

// Run serves workers on l, which it closes, and runs terms until ctx is done. It
// then returns the cause of ctx, after it has finished the calls and moves of the
// last term, saved everything and ended every goroutine. The caller closes the
// store. Run may be called once.
//
// Run runs no term until it has heard from each member from before the restart, or
// one lease of that member has passed. The awaited members and the latest time are
// logged, and [Manager.Members] shows them.
//
// Run fails with [orchestrator.ErrDeposed] if two workers have seen a later epoch,
// which means that there is another manager. One worker alone may be compromised: it
// counts as one that cannot be called, and its tasks stay held. Run also returns an
// error of the store, because a manager acts only on what is stored, and an error of
// serving on l.
func (m *Manager) Run(ctx context.Context, l net.Listener) error {
	if peer.Absent(l) {
		return fmt.Errorf("%w: Manager.Run: the net.Listener is nil", orchestrator.ErrInvalid)
	}
	defer func() { _ = l.Close() }() // closed already if there was a server
	if !m.begun.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: Manager.Run was called before", orchestrator.ErrInvalid)
	}

	leading, end := context.WithCancelCause(ctx)
	defer end(nil)
	// beyond outlives leading until the last term has ended.
	beyond, quit := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer func() {
		quit()
		parts.Wait()
		m.committer.close()
		_ = m.workers.Close() // never fails
	}()
	server, accepting, err := m.settings.NewServer(l, identity.RoleWorker, grpc.WaitForHandlers(true), grpc.ChainUnaryInterceptor(m.refused.count),
		grpc.MaxRecvMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxCalls), grpc.ForceServerCodecV2(wire.RequestCodec{}),
		grpc.StaticStreamWindowSize(maxRequest), grpc.StaticConnWindowSize(2*maxRequest))
	if err != nil {
		return fmt.Errorf("run manager: %w", err)
	}
	orchestratorv1.RegisterManagerServer(server, &managerServer{Manager: m, probes: newDialback(&m.settings)})
	for _, member := range m.committer.catalog.Members() {
		m.connect(communicator.Worker(member.Worker), member.Address)
	}
	m.committer.start()
	parts.Go(func() { m.committer.expire(beyond) })
	parts.Go(func() {
		select {
		case <-m.committer.broken:
			end(m.committer.failure())
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
		peer.Stop(server)
	})
	err = m.lead(leading)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("run manager: %w", err)
}

// lead runs terms once the known members have been heard or have expired.
func (m *Manager) lead(ctx context.Context) error {
	m.announce()
	select {
	case <-m.committer.ready:
	case <-m.committer.broken:
		return m.committer.failure()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	// The expiry of the last lease is decided, but the orchestrator may not know it
	// yet.
	if err := m.committer.do(ctx, func(*state.State, time.Time) error { return nil }); err != nil {
		return err
	}
	m.log.Info("leading", "epoch", m.committer.epoch)
	m.leading.Store(true)
	defer m.leading.Store(false)
	return m.orch.Run(ctx, m.settings.Interval)
}

// announce logs the members that the first term waits for.
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
		m.log.Info("no terms until known members answer or their leases expire",
			"workers", waiting, "first", names, "until", latest)
	}
}
