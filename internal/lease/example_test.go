package lease_test

import (
	"fmt"
	"time"

	"github.com/f8949c05/orchestrator/internal/lease"
)

// A lease counts from when its keepalive was sent: a late acknowledgement gives no
// more time.
func Example() {
	d := lease.NewDeadline(50 * time.Millisecond)
	sent := lease.Now()
	<-time.After(20 * time.Millisecond) // the answer takes its time
	d.Extend(sent)
	fmt.Println(d.Left() <= 30*time.Millisecond)
	<-d.Done()
	d.Extend(lease.Now())
	fmt.Println(d.Left(), "left, whatever is acknowledged now")
	// Output:
	// true
	// 0s left, whatever is acknowledged now
}
