package main

// A process: what it is made of, in which order it comes up, and how it leaves.

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

// node is a process of the fleet.
type node struct {
	settings
	journal *journal
	logger  *slog.Logger // for warnings
	leaving atomic.Bool
	options []etcd.Option
	client  *clientv3.Client
	metrics *prometheus.Registry
	failed  <-chan error // of an etcd of its own; nil without

	leader    atomic.Pointer[string]    // the name; nil if none is known to lead
	shortages atomic.Pointer[shortages] // nil unless this process leads

	registry   *etcd.Registry
	membership *etcd.Membership
	election   *etcd.Election
	owners     *etcd.Owners
	member     *etcd.Member
}

// maxConnections bounds the memory of clients that only connect: some 30 KB each.
// More of them wait until one of these is closed.
const maxConnections = 1000

// run is the whole of a process. It leaves when ctx ends: what it runs is moved
// to others first. again is called then, so that a second signal ends it at
// once.
func run(ctx context.Context, again func(), s settings, out, log io.Writer) (err error) {
	n := &node{settings: s, journal: newJournal(log, s.name), metrics: prometheus.NewRegistry()}
	n.metrics.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	n.logger = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})).With("name", s.name)
	n.options = []etcd.Option{etcd.WithPrefix(s.prefix), etcd.WithLogger(n.logger)}

	if n.etcd == nil {
		server, err := embed.Start(ctx, embed.Config{Dir: s.data, Listen: s.embed})
		if err != nil {
			return fmt.Errorf("start an etcd at %s (-etcd joins one that runs): %w", s.embed, err)
		}
		defer func() { err = errors.Join(err, server.Close()) }()
		n.etcd, n.failed = server.Endpoints(), server.Err()
		n.journal.say("etcd serves at %s, its data is in %s", server.Endpoint(), s.data)
		if !isLoopback(s.embed) {
			n.logger.Warn("etcd reachable by others without a password", "embed", s.embed)
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
	if err := n.build(); err != nil {
		return err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", s.listen)
	if err != nil {
		return fmt.Errorf("-listen: %w", err)
	}
	if s.token == "" && !isLoopback(listener.Addr().String()) {
		n.logger.Warn("API reachable by others without a token", "listen", listener.Addr())
	}
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return errors.Join(err, listener.Close())
	}
	return n.serve(ctx, again, listener)
}

func (n *node) build() (err error) {
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
	parts.Go(func() error { return n.owners.Run(work) })
	parts.Go(func() error {
		err := n.election.Run(leading, n.lead)
		if leading.Err() != nil && work.Err() == nil {
			return nil // resigned, and the rest goes on for a while
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
			return fmt.Errorf("the etcd in this process: %w", err)
		case <-work.Done():
		}
		end()
		return nil
	})
	err := parts.Wait()
	if ctx.Err() != nil && (errors.Is(err, http.ErrServerClosed) || errors.Is(err, context.Canceled)) {
		return nil // it was told to leave, and did
	}
	return err
}

// leave hands on what this process has: the leadership first, so that whoever
// gets it can move the tasks. It takes two leases at most. Where nobody stays,
// because this is the last process, or because all were told to leave, there is
// nobody to hand on to: what is left is stopped at once.
func (n *node) leave(ctx context.Context, resign func(), server *http.Server) {
	n.leaving.Store(true)
	n.journal.say("leaves: hands on what runs here")
	resign()
	limited, cancel := context.WithTimeout(ctx, 2*n.lease)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() {
		// Until limited ends: an etcd that does not answer is waited for that long.
		_ = n.membership.Watch(limited, func(members []etcd.MemberState) {
			if !slices.ContainsFunc(members, n.takesOver) && limited.Err() == nil {
				n.journal.say("nobody stays to hand on to")
				cancel()
			}
		})
	})
	if err := n.member.Close(limited); errors.Is(err, context.DeadlineExceeded) {
		n.journal.say("leaves with tasks that had nowhere to go")
	}
	_ = server.Shutdown(limited)
	cancel()
	watching.Wait()
	n.journal.say("left")
}

// takesOver reports whether a member is another than this one, and stays.
func (n *node) takesOver(m etcd.MemberState) bool { return m.Name != n.name && !m.Draining }

// die is for tasks that do not stop in time: what cannot be stopped ends with
// the process.
func (n *node) die(tasks []string) {
	n.journal.say("ends at once: %d tasks have not stopped in time, and the lease is about to end", len(tasks))
	os.Exit(3)
}
