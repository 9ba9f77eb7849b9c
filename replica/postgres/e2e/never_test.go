package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// TestA2_NeverTwice runs rounds of faults of replicas and the server, one or two at a time.
// Half of the replicas reach the server through a PgBouncer, and half of each have no more than
// rights for the tables. After each round every task must run again, once. No task may run twice
// at the same time.
func TestA2_NeverTwice(t *testing.T) {
	t.Parallel() // it mostly waits
	s := pgtest.Start(t)
	s.SQL(database, "alter system set max_prepared_transactions = 10")
	s.Stop()
	s.Start()
	b := s.Bouncer(t)
	s.SQL(database, fmt.Sprintf(`create role %s login; grant create on schema public to %[1]s;
		alter default privileges in schema public grant all on tables to %[1]s`, limited))
	c := startCluster(t, s.URL(pgtest.User, database), b.URL(pgtest.User, database), s.URL(limited, database), b.URL(limited, database))
	c.bouncer = b
	defer c.report()
	random := rand.New(rand.NewPCG(*seed, 0))
	replicas := c.replicaFaults()
	all := append(c.serverFaults(s, random), replicas...)
	for round, i := range proctest.Draw(random, *rounds, len(all)) {
		waited := c.waited()
		faults := []fault{all[i]}
		if random.IntN(2) == 0 {
			faults = append(faults, replicas[random.IntN(len(replicas))])
		}
		untouched := slices.Clone(c.replicas)
		random.Shuffle(len(untouched), func(i, j int) { untouched[i], untouched[j] = untouched[j], untouched[i] })
		var ends []func()
		for _, f := range faults {
			victim := untouched[0]
			if f.leader {
				victim = c.leader()
			}
			k := slices.Index(untouched, victim)
			if k < 0 {
				continue // the leader has a fault already
			}
			untouched = slices.Delete(untouched, k, k+1)
			t.Logf("round %d: %s (%s)", round, f.name, victim.Name)
			c.counts[f.name]++
			ends = append(ends, f.begin(victim))
			c.Pass(upTo(random, lease/8))
		}
		c.Pass(long(random))
		for _, end := range ends {
			end()
		}
		c.recovers()
		c.check(c.waited() - waited)
	}
	if *rounds >= len(all) {
		require.Len(t, c.counts, len(all))
	}
}

// upTo returns a random duration below d.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(random.Int64N(int64(d)))
}

// long returns how long a fault lasts: in half of the rounds a little less than the lease,
// when a task must not run elsewhere yet, and otherwise up to three leases.
func long(random *rand.Rand) time.Duration {
	if random.IntN(2) == 0 {
		return lease/2 + upTo(random, lease/2)
	}
	return upTo(random, 3*lease)
}
