package keys_test

import (
	"fmt"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

func Example() {
	layout, err := keys.New("/billing/")
	if err != nil {
		fmt.Println(err)
		return
	}
	key := layout.Assigned("worker 1", "invoices/2026")
	fmt.Println(key)
	kind, worker, task, ok := layout.Parse(key)
	fmt.Println(kind == keys.Assigned, worker, task, ok)
	// Output:
	// /billing/assigned/worker%201/invoices%2F2026
	// true worker 1 invoices/2026 true
}
