package main

// The dashboard of the leader. Every process serves one; those that do not lead refer to the
// one that does.

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/etcd"
)

// board is the dashboard of this process.
type board struct {
	*dashboard.Handler

	listener net.Listener
	address  string // for other processes and browsers
}

// newBoard listens and makes the handler. The drains are those of the registry, which outlive
// the leader.
func (n *node) newBoard(ctx context.Context) (*board, error) {
	drain := func(ctx context.Context, w etcd.WorkerID) error { return n.registry.Drain(ctx, w.Name) }
	undrain := func(ctx context.Context, w etcd.WorkerID) error { return n.registry.Undrain(ctx, w.Name) }
	opts := []dashboard.Option{
		dashboard.WithTitle("allocator"), dashboard.WithLogger(n.logger), dashboard.WithLeader(n.leadersBoard),
		dashboard.WithDrain(drain, undrain),
	}
	if n.token != "" {
		opts = append(opts, dashboard.WithToken(n.token))
	}
	h, err := dashboard.New(opts...)
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", n.dashboard)
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	address, err := reachable(listener.Addr())
	if err != nil {
		return nil, fmt.Errorf("-dashboard: %w", err)
	}
	n.journal.say("the dashboard is at %s", address)
	return &board{Handler: h, listener: listener, address: address}, nil
}

// reachable returns the address under which other processes reach a listener: that of the
// host if it listens on all interfaces.
func reachable(a net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(a.String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		if host, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return "http://" + net.JoinHostPort(host, port) + "/", nil
}

// boardAttribute is the attribute of a member with the address of its dashboard.
const boardAttribute = "dashboard"

// attributes returns what other processes can read about this one.
func (n *node) attributes() map[string]string {
	if n.board == nil {
		return nil
	}
	return map[string]string{boardAttribute: n.board.address}
}

// leadersBoard returns the address of the leader's dashboard, or "" if it is not known.
func (n *node) leadersBoard() string {
	leader, boards := n.leader.Load(), n.boards.Load()
	if leader == nil || boards == nil {
		return ""
	}
	return (*boards)[*leader]
}

// tellBoards remembers the addresses of the members' dashboards.
func (n *node) tellBoards(members []etcd.MemberState) {
	boards := make(map[string]string, len(members))
	for _, m := range members {
		boards[m.Name] = m.Attributes[boardAttribute]
	}
	n.boards.Store(&boards)
}

// serve serves the dashboard until ctx ends.
func (b *board) serve(ctx context.Context) error {
	server := &http.Server{Handler: b, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.Serve(b.listener)
}
