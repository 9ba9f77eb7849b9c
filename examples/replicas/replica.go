//go:build unix

package main

// A replica: this program in a process of its own.

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/worker"
)

// stepEvery is the time between two steps of a task.
const stepEvery = 100 * time.Millisecond

// tasks has the names of the tasks. They are feeds to poll, say.
var tasks = strings.Fields("api auth blog cart chat docs feed home jobs mail news shop")

// replicaMain runs a replica until leave ends, and reports what it does on the standard
// output. Its role has three words: its name and lease, and the URL of the table.
func replicaMain(leave context.Context, role string) error {
	words := strings.SplitN(role, " ", 3)
	name, url := words[0], words[2]
	lease, err := time.ParseDuration(words[1])
	if err != nil {
		return err
	}
	context.AfterFunc(stage.Child(), func() { os.Exit(1) }) // without the story nothing is left to show
	var table replica.Backend = remote(url)
	if !strings.HasPrefix(url, "http:") {
		pool, err := pgxpool.New(leave, url)
		if err != nil {
			return err
		}
		table = postgres.New(pool, "examples/replicas")
	}
	leading := func(*orchestrator.Orchestrator[replica.WorkerID, string]) (stop func()) {
		report(name, leads, "-", 0)
		return nil
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // the story says what happens
	return replica.Run(leave, table, replica.Names(tasks...), poll(name),
		replica.WithName(name), replica.WithLease(lease, lease/10), replica.WithLeading(leading))
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

// report writes a report in one write: all replicas share a pipe, and its reader gets
// the reports in the order in which they were written.
func report(name string, does deed, task string, token uint64) {
	_, _ = fmt.Fprintln(os.Stdout, name, does, task, token) // a failure shows in the story
}
