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
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	if len(os.Args) == 4 { // a process of the story: what it is, its name, where etcd is
		err = play(ctx, os.Args[1], os.Args[2], os.Args[3])
	} else {
		err = tell(ctx, os.Stdout)
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
