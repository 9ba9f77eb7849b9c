package postgres_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// A service of equal replicas. Each tenant is polled by one of them.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	tenants := postgres.Query(pool, "select id from tenants where active")
	poll := func(ctx context.Context, _ string) error { // of a tenant
		<-ctx.Done() // work, until ctx ends
		return nil
	}
	if err := replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll); err != nil {
		fmt.Println(err)
	}
}

// A database in which the user of the pool may not create tables. An owner applies the text.
func ExampleSchema() {
	fmt.Println(postgres.Schema("public")[:75])
	// Output: -- The tables of replicas, version 1. Applying this again changes nothing.
}
