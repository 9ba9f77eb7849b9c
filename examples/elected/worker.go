package main

// A worker: a member with a lease in etcd, which receives its assignments over gRPC.

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
)

// addressKey is the membership attribute with the worker's address.
const addressKey = "address"

// work runs a worker. When stop ends, the worker drains and leaves.
func work(ctx, stop context.Context, client *clientv3.Client, name string) error {
	w, err := worker.New(func(ctx context.Context, task string) error {
		content, _ := worker.Content(ctx)
		say(name, "runs", task, string(content))
		defer say(name, "stops", task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(lease, lease/4), worker.WithLastResort(func([]string) { os.Exit(1) }))
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server, err1 := grpc.NewServer(w)
	member, err2 := etcd.NewMember(client, name, w, etcd.WithoutAssignments(),
		etcd.WithAttributes(map[string]string{addressKey: listener.Addr().String()}))
	if err := errors.Join(err1, err2); err != nil {
		return errors.Join(err, listener.Close())
	}
	serving, unserve := context.WithCancel(context.WithoutCancel(ctx))
	var parts sync.WaitGroup
	defer parts.Wait()
	defer unserve() // last, because a leaving worker still receives calls
	parts.Go(func() {
		if err := server.Serve(serving, listener); serving.Err() == nil {
			say(name, "cannot serve:", err.Error())
		}
	})
	left := make(chan error, 1)
	stays := context.AfterFunc(stop, func() {
		draining, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		left <- member.Close(draining) // fails if tasks were stopped before they had moved
	})
	err = member.Run(ctx)
	if !stays() {
		err = errors.Join(err, <-left)
	}
	return err
}
