package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

// node is one process of the fleet.
type node struct {
	settings
	journal *journal
	logger  *slog.Logger // for warnings
	leaving atomic.Bool
	options []etcd.Option
	client  *clientv3.Client
	metrics *prometheus.Registry
	failed  <-chan error // of the embedded etcd; nil without one

	leader    atomic.Pointer[string]    // the leader's name; nil if no leader is known
	shortages atomic.Pointer[shortages] // nil unless this process leads

	board  *board                            // nil without a dashboard
	boards atomic.Pointer[map[string]string] // the addresses of the members' dashboards

	registry   *etcd.Registry
	membership *etcd.Membership
	election   *etcd.Election
	owners     *etcd.Owners
	member     *etcd.Member
}

// maxConnections limits the memory of idle clients, about 30 KB each. Further
// connections wait until one of these is closed.
const maxConnections = 1000

// run runs the process until ctx ends or a part fails. When ctx ends, run first
// moves the tasks to other processes. It calls again at the beginning, so that a
// second signal ends the process immediately.
func run(ctx context.Context, again func(), s settings, out, log io.Writer) (err error) {
	n := &node{settings: s, journal: newJournal(log, s.name), metrics: prometheus.NewRegistry()}
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})).With("name", s.name)
	n.options = []etcd.Option{etcd.WithPrefix(s.prefix), etcd.WithLogger(n.logger)}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	defer func() { _ = listener.Close() }() // closed already, if it was served

	if n.etcd == nil {
		server, err := embed.Start(ctx, embed.Config{Dir: s.data, Listen: s.embed})
		if err != nil {
			return fmt.Errorf("start etcd at %s (use -etcd to join a running one): %w", s.embed, err)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		n.etcd, n.failed = []string{server.Endpoint()}, server.Err()
		n.journal.say("etcd serves at %s, data in %s", server.Endpoint(), s.data)
		if !isLoopback(s.embed) {
			n.logger.Warn("etcd reachable from other machines without a password", "embed", s.embed)
		}
	}
	config, err := s.access.config(n.etcd)
	if err != nil {
		return err
	}
	if n.client, err = clientv3.New(config); err != nil {
		return fmt.Errorf("etcd at %v: %w", n.etcd, err)
	}
	defer func() { _ = n.client.Close() }()
	if err := n.build(ctx); err != nil {
		return err
	}
	if n.board != nil {
		defer func() { _ = n.board.listener.Close() }() // closed already, if it was served
	}
	if s.token == "" && !isLoopback(listener.Addr().String()) {
		n.logger.Warn("API reachable from other machines without a token", "listen", listener.Addr())
	}
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	return n.serve(ctx, again, listener)
}

func (n *node) build(ctx context.Context) (err error) {
	if n.registry, err = etcd.NewRegistry(n.client, n.options...); err != nil {
		return err
	}
	if n.membership, err = etcd.NewMembership(n.client, n.options...); err != nil {
		return err
	}
	if n.owners, err = etcd.NewOwners(n.client, n.options...); err != nil {
		return err
	}
	if n.election, err = n.newElection(); err != nil {
		return err
	}
	if n.dashboard != "" {
		if n.board, err = n.newBoard(ctx); err != nil {
			return err
		}
	}
	n.member, err = n.newMember()
	return err
}

// serve runs all parts until ctx ends or one of them fails.
func (n *node) serve(ctx context.Context, again func(), listener net.Listener) error {
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	parts, work := errgroup.WithContext(work)
	leading, resign := context.WithCancel(work)
	defer resign()

	server := api.NewServer(api.Config{
		Tasks:   tasks{n.registry},
		Cluster: cluster{n},
		Metrics: promhttp.HandlerFor(n.metrics, promhttp.HandlerOpts{}),
		Token:   n.token,
		Hosts:   n.hosts,
		Logger:  n.logger,
	})
	defer context.AfterFunc(work, func() { _ = server.Close() })()
	parts.Go(func() error { return server.Serve(netutil.LimitListener(listener, maxConnections)) })
	if n.board != nil {
		parts.Go(func() error { return n.board.serve(work) })
	}
	parts.Go(func() error { return n.owners.Run(work) })
	parts.Go(func() error {
		err := n.election.Run(leading, n.lead)
		if leading.Err() != nil && work.Err() == nil {
			return nil // resigned; the other parts continue
		}
		return err
	})
	parts.Go(func() error {
		n.tellName(work)
		return n.member.Run(work)
	})
	parts.Go(func() error { return n.tellMembers(work) })
	parts.Go(func() error { return n.tellLeader(work) })
	parts.Go(func() error {
		select {
		case <-ctx.Done():
			again()
			n.leave(work, resign, server)
		case err := <-n.failed:
			return fmt.Errorf("embedded etcd: %w", err)
		case <-work.Done():
		}
		end()
		return nil
	})
	err := parts.Wait()
	if ctx.Err() != nil && (errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled)) {
		return nil // the process left as requested
	}
	return err
}

// leave resigns first, so that the next leader can move the tasks, and then drains
// this process. It takes at most two leases. If no other process stays, leave stops
// the remaining tasks immediately.
func (n *node) leave(ctx context.Context, resign func(), server *http.Server) {
	n.leaving.Store(true)
	n.journal.say("leaving: its tasks move to other processes")
	resign()
	limited, cancel := context.WithTimeout(ctx, 2*n.lease)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		// Watch ends with limited, even if etcd does not answer.
		_ = n.membership.Watch(limited, func(members []etcd.MemberState) {
			if !slices.ContainsFunc(members, n.takesOver) && limited.Err() == nil {
				n.journal.say("no other process stays, stopping the tasks")
				cancel()
			}
		})
	})
	if err := n.member.Close(limited); errors.Is(err, context.DeadlineExceeded) {
		n.journal.say("stopped tasks that could not move")
	}
	_ = server.Shutdown(limited)
	cancel()
	watching.Wait()
	n.journal.say("left")
}

// takesOver reports whether a member is another process that stays.
func (n *node) takesOver(m etcd.MemberState) bool { return m.Name != n.name && !m.Draining }

// die is the last resort for tasks that do not stop in time: it ends the process.
func (n *node) die(tasks []string) {
	const code = 3
	n.journal.say("exiting with code %d: %s have not stopped, and the lease is about to expire", code, strings.Join(tasks, ", "))
	os.Exit(code)
}
