package postgres_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// BenchmarkSync measures Syncs of members that share ten connections.
func BenchmarkSync(b *testing.B) {
	s := pgtest.Start(b)
	config, err := pgxpool.ParseConfig(s.URL(pgtest.User, "postgres"))
	if err != nil {
		b.Fatal(err)
	}
	config.MaxConns = 10
	db, err := pgxpool.NewWithConfig(b.Context(), config)
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	for _, n := range []int{10, 100, 200} {
		b.Run(fmt.Sprintf("members=%d", n), func(b *testing.B) {
			table := postgres.New(db, unique("table"))
			members := make(chan *member, n)
			var last *member
			for i := range n {
				last = newMember(table, uint64(i+1))
				if _, err := last.try(b.Context(), nil); err != nil {
					b.Fatal(err)
				}
				members <- last
			}
			view, err := json.Marshal(last.last)
			if err != nil {
				b.Fatal(err)
			}
			b.ResetTimer()
			var all sync.WaitGroup
			rounds := make(chan struct{})
			for range 10 {
				all.Go(func() {
					for range rounds {
						m := <-members
						if _, err := m.try(b.Context(), nil); err != nil {
							b.Error(err)
						}
						members <- m
					}
				})
			}
			for b.Loop() {
				rounds <- struct{}{}
			}
			close(rounds)
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "Syncs/s")
			b.ReportMetric(float64(len(view)), "bytes/View")
		})
	}
}
