// Elected shows a leader that is elected in etcd, and tells its workers over gRPC
// what to run, so that etcd is not in the path of each assignment.
//
//	go run ./examples/elected
//
// It starts an etcd, two candidates and three workers, the latter as processes of
// their own, tells what happens to them, and ends. README.md says what to look at.
//
// The lessons: leader.go, what a leader follows in etcd, and what it does over gRPC;
// worker.go, a member that takes no assignments from etcd.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator/etcd"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lease is for how long a leader, or a worker, that nobody hears of is waited
// for: short, so that the story is.
const lease = 2 * time.Second

func main() {
	flag.Parse() // there are none, but for -h
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	switch args := flag.Args(); len(args) {
	case 0:
		// An interrupted story ends as any other: its etcd leaves no folder behind.
		interruptible, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		err = tell(interruptible, os.Stdout)
		if interruptible.Err() != nil && ctx.Err() == nil {
			os.Exit(130) // interrupted, as shells say it
		}
		stop()
	case 3: // a process of the story: what it is, its name, where etcd is
		err = play(ctx, args[0], args[1], args[2])
	default:
		err = fmt.Errorf("unexpected argument %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "elected:", err)
		os.Exit(1)
	}
}

// play is a candidate or a worker.
func play(ctx context.Context, role, name, endpoint string) error {
	stop, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer cancel()
	go func() { // whoever tells the story has ended
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the process ends
	switch role {
	case "candidate":
		return stand(stop, client, name)
	case "worker":
		return work(ctx, stop, client, name)
	}
	return fmt.Errorf("%q: there is no such role", role)
}

// say prints one line, in one piece: all processes share their output.
func say(words ...string) {
	_, _ = io.WriteString(os.Stdout, strings.Join(words, " ")+"\n")
}
