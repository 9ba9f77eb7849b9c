package grpc

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/option"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
)

const (
	aLease      = 10 * time.Second
	unreachable = 30 * time.Second
)

var aManager = identity.Principal{Role: identity.RoleManager}

// settingsOf returns the settings for some options.
func settingsOf(t *testing.T, opts ...Option) *peer.Settings {
	t.Helper()
	s := option.Member{Settings: peer.Defaults()}
	for _, opt := range opts {
		opt.ApplyMember(&s)
	}
	return &s.Settings
}

// connect dials an identity at an address until the test ends.
func connect(t *testing.T, address string, who identity.Principal, opts ...Option) *grpc.ClientConn {
	t.Helper()
	conn, err := settingsOf(t, opts...).Dial(address, who)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// with returns the option to use files.
func with(t *testing.T, files testca.Files) Option {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(t, err)
	return WithCredentials(c)
}

// logged returns the option to log to a journal.
func logged(j *grpctest.Journal) Option { return WithLogger(j.Logger()) }

// manage runs a manager until the test ends, and returns its address.
func manage(t *testing.T, opts ...ManagerOption) (m *Manager, address string) {
	t.Helper()
	m, err := NewManager(NewMemoryStore(), opts...)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel(errClosing)
		require.ErrorIs(t, <-done, errClosing)
	})
	return m, l.Addr().String()
}

// probedWithin shortens the time that registering workers have to answer.
func probedWithin(d time.Duration) ManagerOption {
	return managerOptionFunc(func(s *option.Manager) { s.Probing = d })
}
