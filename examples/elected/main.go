// Elected shows a leader that is elected in etcd but sends assignments to its
// workers over gRPC. So etcd is not in the path of each assignment.
//
//	go run ./examples/elected
//
// It starts an etcd, two candidates and three workers, each candidate and worker as
// a process, injects faults, prints what happens, and ends. README.md explains the
// output.
//
// Read leader.go for the leader's use of etcd and gRPC, and worker.go for a member
// that takes no assignments from etcd.
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

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
)

// lease is the lease of the leader and of each worker. It is short to keep the run
// short.
const lease = 2 * time.Second

func main() {
	flag.Parse() // only -h exists
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	var err error
	switch args := flag.Args(); len(args) {
	case 0:
		// Interrupted or not, tell closes etcd, which removes its folder.
		interruptible, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
		err = tell(interruptible, os.Stdout)
		if interruptible.Err() != nil && ctx.Err() == nil {
			os.Exit(130) // the shell convention for SIGINT
		}
		stop()
	case 3: // a child process: role, name, etcd's endpoint
		err = play(ctx, args[0], args[1], args[2])
	default:
		err = fmt.Errorf("unexpected argument %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "elected:", err)
		os.Exit(1)
	}
}

// play runs a child process, a candidate or a worker.
func play(ctx context.Context, role, name, endpoint string) error {
	stop, cancel := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer cancel()
	go func() { // exits when the parent process ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1)
	}()
	client, err := clientv3.New(etcd.ClientConfig(endpoint))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // the process is about to end
	switch role {
	case "candidate":
		return stand(stop, client, name)
	case "worker":
		return work(ctx, stop, client, name)
	}
	return fmt.Errorf("unknown role %q", role)
}

// say prints a line in one write, because all processes share their output.
func say(words ...string) {
	_, _ = io.WriteString(os.Stdout, strings.Join(words, " ")+"\n")
}
