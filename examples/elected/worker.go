package main

// A worker: a member in etcd, where it keeps its lease, that is told over gRPC
// what to run.

import (
	"context"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// addressKey is the attribute under which a worker says where it is called.
const addressKey = "address"

// work is a worker until stop ends; then it leaves as soon as its tasks have moved.
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
	defer unserve() // last: while it leaves, it is still called
	parts.Go(func() {
		if err := server.Serve(serving, listener); serving.Err() == nil {
			say(name, "does not serve:", err.Error())
		}
	})
	left := make(chan error, 1)
	stays := context.AfterFunc(stop, func() {
		draining, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		left <- member.Close(draining) // an error says that tasks were stopped before they had moved
	})
	err = member.Run(ctx)
	if !stays() {
		err = errors.Join(err, <-left)
	}
	return err
}
