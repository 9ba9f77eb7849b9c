// Tenants polls every active tenant of a database on exactly one of its replicas: start it
// as often as you like.
//
//	DATABASE_URL=postgres://… go run ./examples/tenants
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "tenants:", err)
		os.Exit(1)
	}
}

func run() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	table := postgres.New(pool, "pollers")
	tenants := postgres.Query(pool, "select id from tenants where active")
	return replica.Run(ctx, table, tenants, poll, replica.WithPlaintext(), replica.WithLogger(slog.Default()))
}

// poll is called for each tenant of this replica, and again if it fails.
func poll(ctx context.Context, tenant string) error {
	fmt.Println("polling", tenant)
	<-ctx.Done() // poll until then
	fmt.Println("stopped", tenant)
	return nil
}
