//go:build unix

// Replicas shows equal processes that share tasks, and what becomes of the tasks when one
// of the processes joins, is killed, leaves, loses its store or is frozen.
//
//	go run ./examples/replicas
//
// It needs no set-up. This process keeps the table of the replicas in memory and serves
// it on loopback. Each replica is a process of its own. All of them report what they run,
// and at the end this process says whether a task ever ran twice.
//
//	go run ./examples/replicas -backend postgres -url postgres://…
//
// keeps the table in a database. Then it is not taken away.
//
// Read replica.go for how to run a replica, and table.go for how a table is reached over
// a network. story.go has the demonstration, and journal.go what is checked.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/replica/memory"
)

func main() {
	if role := stage.Role(); role != "" {
		stage.Main("replicas", func(leave context.Context) error { return replicaMain(leave, role) })
	}
	backend := flag.String("backend", "memory", "where the replicas share their table: memory or postgres")
	url := flag.String("url", "", "of the database, for postgres")
	lease := flag.Duration("lease", 3*time.Second, "of the replicas, short to keep the story short: the library's default is 15s")
	flag.Parse()
	stage.Main("replicas", func(ctx context.Context) error {
		if flag.NArg() > 0 {
			return fmt.Errorf("unexpected argument %q", flag.Arg(0))
		}
		if *lease < time.Second {
			return fmt.Errorf("-lease is %v: must be 1s or more", *lease)
		}
		return run(ctx, *backend, *url, *lease, os.Stdout, os.Stderr)
	})
}

// run tells the story with replicas on a backend. It ends all its processes.
func run(ctx context.Context, backend, url string, lease time.Duration, stdout, stderr io.Writer) error {
	s := &story{ctx: ctx, log: stage.NewLog(stdout), journal: newJournal(tasks), lease: lease}
	s.log.Title("%d tasks for equal processes, with leases of %v", len(tasks), lease)
	switch {
	case backend == "memory":
		s.table = memory.New()
		serving, err := stage.Serve(stage.Loopback, server{s.table})
		if err != nil {
			return err
		}
		defer func() { _ = serving.Close() }() // the story has ended
		url = serving.URL
		s.say("the table of the replicas is in memory, at %s", url)
	case backend != "postgres":
		return fmt.Errorf("unknown backend %q: want memory or postgres", backend)
	case url == "":
		return errors.New("-backend postgres needs a -url")
	default:
		s.say("the table of the replicas is in PostgreSQL; if it is new, no replica leads for one lease")
	}
	fleet, err := newFleet(url, lease, stderr)
	if err != nil {
		return err
	}
	defer fleet.close()
	s.fleet = fleet
	return s.tell()
}
