package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
)

// lead runs a candidate, which leads whenever it is elected.
func lead(ctx context.Context, client *clientv3.Client, name string) error {
	election, err := etcd.NewElection(client, name)
	if err != nil {
		return err
	}
	return election.Lead(ctx, time.Second)
}

// work runs a worker. It joins, runs its tasks, and stops them before its lease can
// expire.
func work(ctx context.Context, client *clientv3.Client, name string, run func(ctx context.Context, task string) error) error {
	w, err := worker.New(run,
		worker.WithLease(10*time.Second, 3*time.Second),
		worker.WithLastResort(func([]string) { os.Exit(1) }))
	if err != nil {
		return err
	}
	member, err := etcd.NewMember(client, name, w)
	if err != nil {
		return err
	}
	return member.Run(ctx)
}

// connect starts an etcd in the process, and returns a client. A process of a real
// system connects to an existing etcd.
func connect(ctx context.Context) (client *clientv3.Client, disconnect func(), err error) {
	server, err := embed.Start(ctx, embed.Config{})
	if err != nil {
		return nil, nil, err
	}
	client, err = clientv3.New(etcd.ClientConfig(server.Endpoint()))
	if err != nil {
		return nil, nil, errors.Join(err, server.Close())
	}
	return client, func() { _, _ = client.Close(), server.Close() }, nil
}

// A leader and a worker, which are usually separate processes, and a client that
// changes tasks.
func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, disconnect, err := connect(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer disconnect()

	seen := make(chan string)
	poll := func(ctx context.Context, task string) error {
		url, _ := worker.Content(ctx)
		seen <- fmt.Sprintf("%s: poll %s", task, url)
		<-ctx.Done()
		seen <- fmt.Sprintf("%s: %v", task, context.Cause(ctx))
		return context.Cause(ctx)
	}
	var running sync.WaitGroup
	running.Go(func() { _ = lead(ctx, client, "host-1") })
	running.Go(func() { _ = work(ctx, client, "host-1", poll) })

	tasks, err := etcd.NewRegistry(client)
	if err != nil {
		fmt.Println(err)
		return
	}
	put := func(name, content string) {
		if _, _, err := tasks.Put(ctx, etcd.Item{Name: name, Content: []byte(content)}); err != nil {
			fmt.Println(err)
		}
	}
	put("orders", "https://eu.example/orders")
	fmt.Println(<-seen)
	put("orders", "https://us.example/orders")
	fmt.Println(<-seen)
	fmt.Println(<-seen)
	if err := tasks.Delete(ctx, "orders"); err != nil {
		fmt.Println(err)
	}
	fmt.Println(<-seen)
	cancel()
	running.Wait()
	// Output:
	// orders: poll https://eu.example/orders
	// orders: the task was updated
	// orders: poll https://us.example/orders
	// orders: the task was removed
}

// A leader that uses its orchestrator, here to print what each term changes.
func ExampleLeadWith() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client, disconnect, err := connect(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer disconnect()
	election, err1 := etcd.NewElection(client, "host-1")
	tasks, err2 := etcd.NewRegistry(client)
	members, err3 := etcd.NewMembership(client)
	if err := errors.Join(err1, err2, err3); err != nil {
		fmt.Println(err)
		return
	}

	changes := make(chan string, 10)
	lead := func(ctx context.Context, l *etcd.Leadership) error {
		comm, err := etcd.NewCommunicator(ctx, client, l)
		if err != nil {
			return err
		}
		var o *orchestrator.Orchestrator[etcd.WorkerID, string]
		load := func(made *orchestrator.Orchestrator[etcd.WorkerID, string]) error {
			o = made
			return errors.Join(tasks.Feed(ctx, l, o), members.Feed(ctx, l, o))
		}
		return etcd.LeadWith(ctx, l, comm, time.Second, load, orchestrator.WithStats(func(orchestrator.TermStats) {
			for _, c := range o.LastPlan().Changes {
				changes <- fmt.Sprintf("%s starts on %s", c.Task, c.To)
			}
		}))
	}
	var running sync.WaitGroup
	running.Go(func() { _ = election.Run(ctx, lead) })
	running.Go(func() {
		_ = work(ctx, client, "host-2", func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
	})
	if _, err := tasks.Create(ctx, etcd.Item{Name: "orders"}); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(<-changes)
	cancel()
	running.Wait()
	// Output:
	// orders starts on host-2
}
