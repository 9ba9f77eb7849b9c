package membership_test

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/f8949c05/orchestrator/internal/membership"
	"github.com/f8949c05/orchestrator/worker"
)

// printer is a transport that prints what it does.
type printer struct {
	*membership.Session
	joined chan struct{}
}

func (p printer) Join(context.Context) error {
	fmt.Println("join")
	close(p.joined)
	return nil
}

func (printer) Keep(ctx context.Context) error { // sends heartbeats
	<-ctx.Done()
	return nil
}

func (p printer) Announce(ctx context.Context) error {
	fmt.Println("announce")
	return p.Emptied(ctx)
}

func (printer) Leave(_ context.Context, reason error) { fmt.Println("leave:", reason) }

// A member joins, and is closed.
func Example() {
	ctx := context.Background()
	w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
	if err != nil {
		fmt.Println(err)
		return
	}
	r := membership.New(w, "w1", slog.New(slog.DiscardHandler))
	joined, run := make(chan struct{}), make(chan error, 1)
	config := membership.Config{
		Open: func(_ context.Context, s *membership.Session) (membership.Transport, error) {
			return printer{s, joined}, nil
		},
		Final: func(error) bool { return false },
		Lost:  "membership lost, joining again",
	}
	go func() {
		run <- r.Run(ctx, func(ctx context.Context) error { return r.Sessions(ctx, config) })
	}()
	<-joined
	fmt.Println("close:", r.Close(ctx))
	fmt.Println("run:", <-run)
	// Output:
	// join
	// announce
	// leave: worker is draining
	// close: <nil>
	// run: <nil>
}
