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
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	tenants := postgres.Query(pool, "select id from tenants where active")
	if err := replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll, replica.WithPlaintext()); err != nil {
		fmt.Println(err)
	}
}

func poll(ctx context.Context, tenant string) error {
	fmt.Println("polling", tenant)
	<-ctx.Done()
	return nil
}

// Without PgBouncer, or beside it, changes can be seen at once.
func ExampleWithListen() {
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_ = postgres.New(pool, "pollers", postgres.WithListen(pool.Config().ConnConfig))
}
