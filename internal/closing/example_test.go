package closing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/f8949c05/orchestrator/internal/closing"
)

// The member cannot be drained, and the context of Close has already ended.
func Example() {
	c := closing.New(func() {})
	fmt.Println("may run:", c.Begin())
	go func() {
		<-c.Drain() // the member asks the leader to move its tasks, in vain
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
