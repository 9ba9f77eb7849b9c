// Service is examples/tenants with what a service wants beside: probes, metrics and the
// dashboard. Start it as often as you like, each with an address of its own.
//
//	DATABASE_URL=postgres://… go run ./examples/service -listen localhost:8081
package main

import (
	"context"
	"flag"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/admin"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

func main() {
	listen := flag.String("listen", "localhost:8080", "`address` of the probes, the metrics and the dashboard")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	tenants := postgres.Query(pool, "select id from tenants where active")
	r, err := replica.New(postgres.New(pool, "pollers"), tenants, poll, replica.WithName(*listen))
	if err != nil {
		log.Fatal(err)
	}
	h, err := admin.New(r)
	if err != nil {
		log.Fatal(err)
	}
	go func() { log.Fatal(http.ListenAndServe(*listen, h)) }()
	log.Printf("the dashboard is at http://%s/dashboard/", *listen)
	if err := r.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// poll is called for each tenant of this replica, and again if it returns before ctx ends.
func poll(ctx context.Context, _ string) error {
	<-ctx.Done() // poll until then
	return nil
}
