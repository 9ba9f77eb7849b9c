package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/netutil"

	"github.com/f8949c05/orchestrator/examples/allocator/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
)

// node is one process of the fleet.
type node struct {
	settings
	log      *slog.Logger
	failed   <-chan error // of the embedded etcd; nil without one
	registry *etcd.Registry
	replica  *replica.Replica
}

// maxConnections limits the memory of idle clients, about 30 KB each. Further
// connections wait until one of these is closed.
const maxConnections = 1000

// run runs the process until ctx ends or a part fails. When ctx ends, its tasks move to other
// processes first.
func run(ctx context.Context, s settings, out, log io.Writer) (err error) {
	logger := slog.New(slog.NewTextHandler(log, nil))
	n := &node{settings: s, log: logger.With("replica", s.name)}
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
		n.log.Info("etcd serves", "endpoint", server.Endpoint(), "data", s.data)
		if !isLoopback(s.embed) {
			n.log.Warn("etcd reachable from other machines without a password", "embed", s.embed)
		}
	}
	config, err := s.access.config(n.etcd)
	if err != nil {
		return err
	}
	client, err := clientv3.New(config)
	if err != nil {
		return fmt.Errorf("etcd at %v: %w", n.etcd, err)
	}
	defer func() { _ = client.Close() }()
	n.registry = etcd.NewRegistry(client, s.prefix)
	board, err := dashboardAt(listener.Addr())
	if err != nil {
		return err
	}
	n.replica, err = replica.New(etcd.New(client, s.prefix, etcd.WithLogger(n.log)), n.registry.Watch, n.work,
		replica.WithName(s.name), replica.WithLease(s.lease, s.lease/5), replica.WithDrain(2*s.lease), replica.WithInterval(s.interval),
		replica.WithSettings(s.placement), replica.WithAttributes(map[string]string{"dashboard": board}), replica.WithLogger(logger))
	if err != nil {
		return err
	}
	admin, err := n.newAdmin(n.replica)
	if err != nil {
		return err
	}
	if s.token == "" && !isLoopback(listener.Addr().String()) {
		n.log.Warn("API reachable from other machines without a token", "listen", listener.Addr().String())
	}
	if _, err := fmt.Fprintf(out, "http://%s\n", listener.Addr()); err != nil {
		return err
	}
	return n.serve(ctx, netutil.LimitListener(listener, maxConnections), api.NewServer(api.Config{
		Registry: n.registry, Cluster: cluster{n.replica}, Admin: admin, Token: n.token, Hosts: n.hosts, Logger: n.log,
	}))
}

// serve runs the replica and the API until ctx ends or one of them fails. The API serves while the
// tasks move.
func (n *node) serve(ctx context.Context, listener net.Listener, server *http.Server) error {
	work, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var parts sync.WaitGroup
	parts.Go(func() { fail(server.Serve(listener)) })
	parts.Go(func() {
		select {
		case err := <-n.failed:
			fail(fmt.Errorf("embedded etcd: %w", err))
		case <-work.Done():
		}
	})
	err := n.replica.Run(work)
	switch {
	case errors.Is(err, replica.ErrUndrained):
		n.log.Warn("stopped tasks that could not move", "err", err)
		err = nil
	case err == nil && ctx.Err() == nil:
		err = context.Cause(work)
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	_ = server.Shutdown(ending) // requests that take longer are cut off
	_ = server.Close()
	fail(nil)
	parts.Wait()
	return err
}

// work is the function of every task. A real one would poll, consume or serve, and send the token
// with each write to a store. The store would compare the token with the highest it has seen. This
// one only logs. It reads its content from the registry, and again when that has changed.
func (n *node) work(ctx context.Context, task string) error {
	updated := worker.Updated(ctx)
	token, _ := worker.Token(ctx)
	log := n.log.With("task", task)
	for what := "started"; ; {
		var again <-chan time.Time
		item, err := n.registry.Get(ctx, task)
		switch {
		case err == nil:
			log.Info(what, "content", brief(item.Content), "revision", item.Revision, "token", token)
			what = "updated"
		case errors.Is(err, etcd.ErrNotFound): // it was deleted, and stops soon
			again = time.After(time.Second)
		case what == "started":
			return err // it is called again
		default:
			log.Warn("goes on with an older content", "err", err)
			again = time.After(time.Second)
		}
		select {
		case <-updated:
		case <-again:
		case <-ctx.Done():
			if what == "updated" {
				log.Info("stopped", "why", context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
	}
}

// brief returns the beginning of a content.
func brief(content []byte) string {
	const most = 40
	if len(content) <= most {
		return string(content)
	}
	return fmt.Sprintf("%s … (%d bytes)", content[:most], len(content))
}
