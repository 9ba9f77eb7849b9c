// Tenants polls every active tenant of a database on exactly one of its replicas: start it
// as often as you like.
//
//	DATABASE_URL=postgres://… go run ./examples/tenants
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	pool, err := pgxpool.New(ctx, databaseURL())
	if err != nil {
		log.Fatal(err)
	}
	tenants := postgres.Query(pool, "select id from tenants where active")
	if err := replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll); err != nil {
		log.Fatal(err)
	}
}

// poll is called for each tenant of this replica, and again if it returns before ctx ends.
func poll(ctx context.Context, tenant string) error {
	fmt.Println("polling", tenant)
	<-ctx.Done() // poll until then
	fmt.Println("stopped", tenant)
	return nil
}
