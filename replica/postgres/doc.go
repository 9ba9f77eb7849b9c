// Package postgres is a table of replicas in PostgreSQL 13 or later. It keeps every clause
// of [replica.Backend].
//
//	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
//	…
//	tenants := postgres.Query(pool, "select id from tenants where active")
//	err = replica.Run(ctx, postgres.New(pool, "pollers"), tenants, poll, replica.WithPlaintext())
package postgres
