package closing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator/internal/closing"
)

// A member that cannot be drained is closed by somebody with no patience.
func Example() {
	c := closing.New(func() {})
	fmt.Println("may run:", c.Begin())
	go func() {
		<-c.Drain() // the member asks for its tasks to be moved, and nobody does so
		<-c.Leave()
		c.Finish(c.Hurried())
	}()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("the process ends"))
	fmt.Println(c.Close(ctx, nil))
	fmt.Println("may run again:", c.Begin())
	// Output:
	// may run: true
	// stopped before everything had moved: the process ends
	// may run again: false
}
