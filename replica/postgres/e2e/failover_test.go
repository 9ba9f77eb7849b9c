package e2e_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// lateReturn ends the name of a fault after which a replica is stopped for less than its
// lease, so that it syncs with the new primary after the others.
const lateReturn = ", and it syncs late"

// TestB7_Failover fails over to an asynchronous standby that has not received what the
// server acknowledged last: heartbeats, and in most rounds also the join of a replica, its
// removal, or an election. No task may run twice at the same time.
func TestB7_Failover(t *testing.T) {
	t.Parallel() // it mostly waits
	primary := pgtest.Start(t)
	primary.SQL(database, "create table marks (round int)")
	standby := primary.Standby()
	url := fmt.Sprintf("postgres://%s@%s,%s/%s?sslmode=disable&target_session_attrs=read-write",
		pgtest.User, primary.Addr(), standby.Addr(), database)
	c := startCluster(t, url, url, url, url)
	defer c.report()
	random := rand.New(rand.NewPCG(*seed, 1))
	again := func(replicas ...*proctest.Process) func() { // under other IDs
		for _, r := range replicas {
			r.Leave()
		}
		c.Wait("they have left", time.Minute, func() bool {
			return !slices.ContainsFunc(replicas, (*proctest.Process).Alive)
		})
		c.Restart()
		c.Wait("they run their share of the tasks", time.Minute, c.even)
		return func() {}
	}
	lost := []fault{
		{"heartbeats are lost", false, func(*proctest.Process) func() { return func() {} }},
		{"the removal of a replica is lost", false, c.leave},
		{"a replica is killed, and its eviction may be lost", false, c.kill},
		{"a replica is stopped, and its eviction may be lost", false, c.pause},
		{"the end of a leader is lost", true, c.leave},
		{"the eviction of a leader may be lost", true, c.kill},
		{"the eviction of a leader that is stopped may be lost", true, c.pause},
		{"the join of a replica is lost", false, func(r *proctest.Process) func() { return again(r) }},
		{"the join of a replica is lost" + lateReturn, false, func(r *proctest.Process) func() {
			again(r)
			return c.pause(r)
		}},
		{"the joins of all but the leader are lost", false, func(*proctest.Process) func() {
			return again(slices.DeleteFunc(slices.Clone(c.replicas), func(r *proctest.Process) bool { return r == c.leader() })...)
		}},
	}
	for round, i := range proctest.Draw(random, max(1, *rounds/5), len(lost)) {
		waited := c.waited()
		victim := c.replicas[random.IntN(len(c.replicas))]
		if lost[i].leader {
			victim = c.leader()
		}
		t.Logf("round %d: %s (%s)", round, lost[i].name, victim.Name)
		c.counts[lost[i].name]++
		standby.Cut()
		end := lost[i].begin(victim)
		longest := 2 * lease
		if strings.HasSuffix(lost[i].name, lateReturn) {
			longest = lease / 8
		}
		c.Pass(upTo(random, longest))
		primary.SQL(database, fmt.Sprintf("insert into marks values (%d)", round))
		primary.Crash()
		c.Pass(upTo(random, longest/2))
		standby.Promote()
		require.Empty(t, standby.SQL(database, fmt.Sprintf("select round from marks where round = %d", round)), "nothing was lost")
		c.Pass(lease/4 + upTo(random, longest/2))
		end()
		c.recovers()
		c.check(c.waited() - waited)
		primary.Follow(standby)
		primary, standby = standby, primary
	}
}
