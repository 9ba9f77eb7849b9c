package postgres_test

// Each dangerous mistake in the statements is found by the conformance kit.

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica/backendtest"
	"github.com/f8949c05/orchestrator/replica/postgres"
)

// raced makes a campaign wait, so that others come between two steps also on a busy machine.
const raced = "perform pg_sleep(0.3) where (u->'Campaign')::bigint > 0; "

// locked is the end of the statement that takes the lock.
const locked = "order by r.revision desc limit 1 for update;"

// defects are mistakes, each with the test of the kit that must fail.
var defects = []struct {
	name, found string
	replace     []string // pieces of the schema, each followed by another
}{
	{"reads the epoch before the lock", "B3_OneCampaignOfAnEpochSucceeds", []string{
		locked, "order by r.revision desc limit 1; " + raced + "perform from replica_tables r where r.name = p_name " + locked,
		"r.revision = before.revision", "true",
	}},
	{"reads the members before the lock", "B4_LeaderOrMemberSeesTheOther", []string{
		"this := replica_begin_1(p_patience);\n    select r.*", "this := replica_begin_1(p_patience); perform set_config('app.early', pg_current_snapshot()::text, true); " + raced + "select r.*",
		"b.epoch::text) end) into members", "b.epoch::text) end) filter (where m.id = self or coalesce(pg_visible_in_snapshot(m.written, nullif(current_setting('app.early', true), '')::pg_snapshot), true)) into members",
	}},
	{"late Syncs publish", "B1_HeartbeatsRise", []string{"beat > coalesce(old.heartbeat, 0)", "true"}},
	{"a report is not written with a Sync", "B1_RecordsAreShownAsPublished", []string{"perform replica_report_1(p_name, self, beat, u->'Report', this);", "null;"}},
	{"reports by the oldest snapshot", "B1_ChangesAreShown", []string{"r.written > newest", "false"}},
	{"Evict compares nothing", "B2_EvictComparesTheHeartbeat", []string{"r.id = x.id and r.heartbeat = x.heartbeat", "r.id = x.id"}},
	{"Evict keeps the report", "B2_EvictComparesTheHeartbeat", []string{
		"select json_object_agg(m.id, r.record) into reports from replica_members m",
		"select json_object_agg(m.id, r.record) into reports from (select distinct y.id, p_name as name from replica_reports y where y.name = p_name) m",
		"delete from replica_reports r where r.name = p_name and r.id = p_id;", "",
	}},
	{"removed IDs Sync", "B2_RemovedIDsStayRemoved", []string{"and removed then", "and false then"}},
	{"campaigns compare no epoch", "B3_EpochsAndSeen", []string{"(u->'Epoch')::bigint = t.epoch", "true"}},
	{"campaigns need no Confirm", "B7_NothingBeforeConfirm", []string{"if t.confirmed and", "if"}},
	{"every table is the same Server", "B7_AnotherTableIsAnotherServer", []string{"gen_random_uuid()", "'one'"}},
	{"another Server is written", "B7_AnotherServerOnlyReads", []string{"elsif t.server = u->>'Server' and beat", "elsif beat"}},
	{"batches of others", "O4_O5_BatchesOfOthers", []string{"t.leader = self and (b->'Epoch')::bigint = t.epoch", "b is not null"}},
	{"late batches", "O4_O5_BatchesOfOthers", []string{" and (b->'Version')::bigint > t.batch", ""}},
	{"orders are not counted", "O4_O5_LostOrders", []string{"and replica_missed_1(p_name, null, t.orders, t.tasks)", "and false"}},
	{"orders to stop count", "O7_OrdersAreCounted", []string{"(not c.dropped and not c.stop)::int", "(not c.dropped)::int"}},
}

const (
	chosen = "POSTGRES_DEFECT" // a defect, by its name
	at     = "POSTGRES_URL"
)

// TestKit_OnADefect is run by TestKit_FindsEachDefect in a process of its own.
func TestKit_OnADefect(t *testing.T) {
	for _, d := range defects {
		if d.name != os.Getenv(chosen) {
			continue
		}
		text := postgres.Text
		for i := 0; i < len(d.replace); i += 2 {
			require.Contains(t, text, d.replace[i])
			text = strings.ReplaceAll(text, d.replace[i], d.replace[i+1])
		}
		backendtest.Run(t, func(t *testing.T) backendtest.Store { return store(t, pool(t, os.Getenv(at)), text) })
		return
	}
	t.Skip("run by TestKit_FindsEachDefect")
}

func TestKit_FindsEachDefect(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestKit_OnADefect$/^"+d.found+"$")
			cmd.Env = append(os.Environ(), chosen+"="+d.name, at+"="+s.URL(pgtest.User, database(t, s)))
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.NotContains(t, string(out), "SQLSTATE 42", "the statements are wrong: %s", out)
			require.Contains(t, string(out), "--- FAIL: TestKit_OnADefect/"+d.found, "%s", out)
		})
	}
}
