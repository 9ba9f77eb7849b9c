// Command server runs an etcd server until it is told to end. Tests run it as a process of its own,
// so that it can be killed. Its arguments are the data folder and the address for clients.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // a program
	}
}

func run() error {
	if len(os.Args) != 3 {
		return fmt.Errorf("usage: %s FOLDER ADDRESS", os.Args[0])
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := embed.Start(ctx, embed.Config{Dir: os.Args[1], Listen: os.Args[2], NoFsync: true})
	if err != nil {
		return err
	}
	<-ctx.Done()
	return s.Close()
}
