package lease_test

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/internal/lease"
)

// A lease counts from the sending of its keepalive: a late acknowledgement gives no
// extra time.
func Example() {
	d := lease.NewDeadline(50 * time.Millisecond)
	sent := lease.Now()
	<-time.After(20 * time.Millisecond) // the acknowledgement is slow
	d.Extend(sent)
	fmt.Println(d.Left() <= 30*time.Millisecond)
	<-d.Done()
	d.Extend(lease.Now())
	fmt.Println(d.Left(), "left: too late to extend")
	// Output:
	// true
	// 0s left: too late to extend
}
