package main

// A replica: this program in a process of its own.

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/worker"
)

const (
	// exitExpired is the exit code of a replica whose tasks have outlived its lease.
	exitExpired = 3
	// stepEvery is the time between two steps of a task.
	stepEvery = 100 * time.Millisecond
)

// The backends, and how messages list them.
const (
	backendMemory   = "memory"
	backendPostgres = "postgres"
	backends        = backendMemory + " or " + backendPostgres
)

// tasks has the names of the tasks. They are feeds to poll, say.
var tasks = strings.Fields("api auth blog cart chat docs feed home jobs mail news shop")

// replicaMain runs a replica until leave ends, and reports what it does on the standard
// output. Its role has four words: its name and lease, the backend and its address.
func replicaMain(leave context.Context, role string) error {
	words := strings.SplitN(role, " ", 4)
	name := words[0]
	lease, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	context.AfterFunc(stage.Child(), func() { os.Exit(1) }) // without the story nothing is left to show
	backend, disconnect, err := connect(leave, words[2], words[3])
	if err != nil {
		return err
	}
	defer disconnect()
	r, err := replica.New(backend, replica.Names(tasks...), poll(name),
		replica.WithName(name), replica.WithLease(lease, lease/10),
		replica.WithLastResort(func([]string) { os.Exit(exitExpired) })) // the default would also log
	if err != nil {
		return err
	}
	reporting, stop := context.WithCancel(context.WithoutCancel(leave))
	defer stop()
	go reportLeading(reporting, name, r)
	return r.Run(leave)
}

// connect returns the backend of a kind at an address, and what ends its connections.
func connect(ctx context.Context, kind, address string) (b replica.Backend, disconnect func(), err error) {
	switch kind {
	case backendMemory:
		c := newTableClient(address)
		return c, c.client.CloseIdleConnections, nil
	case backendPostgres:
		pool, err := pgxpool.New(ctx, address)
		if err != nil {
			return nil, nil, err
		}
		return postgres.New(pool, "examples/replicas"), pool.Close, nil
	}
	return nil, nil, fmt.Errorf("unknown backend %q", kind)
}

// poll returns the function of every task. It does a step of work now and then, and
// reports each with the task's token. A token rises with each new owner of the task, so
// the reader of the reports can tell those of a former owner.
func poll(name string) func(ctx context.Context, task string) error {
	return func(ctx context.Context, task string) error {
		token, _ := worker.Token(ctx)
		report(name, starts, task, token)
		defer report(name, stops, task, token)
		tick := time.NewTicker(stepEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
			// After a pause of the process Check fails before ctx ends.
			if worker.Check(ctx) == nil {
				report(name, works, task, token)
			}
		}
	}
}

// reportLeading reports each election that the replica wins, until ctx ends.
func reportLeading(ctx context.Context, name string, r *replica.Replica) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for led := uint64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if s := r.Status(); s.Leading && s.Epoch > led {
			led = s.Epoch
			report(name, leads, "-", led)
		}
	}
}

// report writes a report in one write: all replicas share a pipe, and its reader gets
// the reports in the order in which they were written.
func report(name string, does deed, task string, token uint64) {
	_, _ = fmt.Fprintln(os.Stdout, name, does, task, token) // a failure shows in the story
}
