package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// A replica runs two tasks, and leaves. A server in the process stands in for etcd.
func Example() {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, err := embed.Start(ctx, embed.Config{NoFsync: true, Tick: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	running := make(chan string)
	poll := func(ctx context.Context, tenant string) error {
		running <- tenant
		<-ctx.Done() // work, until ctx ends
		return ctx.Err()
	}
	ended := make(chan error)
	go func() {
		quiet := slog.New(slog.DiscardHandler)
		ended <- replica.Run(ctx, etcd.New(client, "/pollers/", etcd.WithLogger(quiet)), replica.Names("acme", "initech"), poll,
			replica.WithName("pod-1"), replica.WithLease(time.Second, 100*time.Millisecond), replica.WithLogger(quiet))
	}()
	tenants := []string{<-running, <-running}
	slices.Sort(tenants)
	fmt.Println("running:", tenants)

	all, err := client.Get(ctx, "/pollers/", clientv3.WithPrefix())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, kv := range all.Kvs {
		fmt.Println(regexp.MustCompile(`\d{10,}`).ReplaceAllString(string(kv.Key), "ID"))
	}
	stop() // as on SIGTERM
	fmt.Println("ended:", <-ended)
	// Output:
	// running: [acme initech]
	// /pollers/batch
	// /pollers/beats/ID
	// /pollers/epoch
	// /pollers/members/ID
	// /pollers/orders/ID
	// /pollers/reports/ID
	// /pollers/table
	// /pollers/table/members
	// /pollers/tasks/acme
	// /pollers/tasks/initech
	// ended: <nil>
}

// A leader writes to etcd, and guards its transactions. What it writes takes no effect once another
// process was elected.
func ExampleTable_Guard() {
	server, err := embed.Start(context.Background(), embed.Config{NoFsync: true, Tick: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	quiet := slog.New(slog.DiscardHandler)
	table := etcd.New(client, "/leaders/", etcd.WithLogger(quiet))
	former := uint64(0)
	lead := func(ctx context.Context, epoch uint64) error {
		for _, e := range []uint64{epoch, former} {
			resp, err := client.Txn(ctx).If(table.Guard(e)).Then(clientv3.OpPut("/plan", "a new one")).Commit()
			if err != nil {
				return err
			}
			fmt.Println("the last election:", e == epoch, "written:", resp.Succeeded)
		}
		former = epoch
		return nil // it resigns
	}
	for range 2 {
		err := replica.Lead(context.Background(), table, lead, replica.WithLease(time.Second, 100*time.Millisecond), replica.WithLogger(quiet))
		fmt.Println("ended:", err)
	}
	// Output:
	// the last election: true written: true
	// the last election: false written: false
	// ended: <nil>
	// the last election: true written: true
	// the last election: false written: false
	// ended: <nil>
}
