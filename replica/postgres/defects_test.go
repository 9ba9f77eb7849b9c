package postgres_test

// Each dangerous mistake in the procedure is found by the conformance kit.

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/postgres"
	"github.com/f8949c05/orchestrator/replica/replicatest"
)

// raced makes a campaign wait, so that others come between two steps also on a busy machine.
const raced = "perform pg_sleep(0.3) where p_campaign > 0; "

// defects are mistakes, each with the test of the kit that must fail.
var defects = []struct {
	name, found string
	replace     []string // pieces of the schema, each followed by another
}{
	{"no lock", "B3_OneCampaignOfAnEpochSucceeds", []string{"p_name for update;", "p_name; " + raced + "perform from orchestrator_tables x where x.name = p_name;"}},
	{"reads the epoch before the lock", "B3_OneCampaignOfAnEpochSucceeds", []string{
		"p_name for update;", "p_name; " + raced + "perform from orchestrator_tables x where x.name = p_name for update;",
	}},
	{"reads the members before the lock", "B4_LeaderOrMemberSeesTheOther", []string{
		"  loop", "  perform set_config('app.early', pg_current_snapshot()::text, true); loop",
		"json_agg(m.record)", "json_agg(m.record) filter (where m.id = p_id or pg_visible_in_snapshot(m.written, current_setting('app.early')::pg_snapshot))",
	}},
	{"late Syncs publish", "B1_HeartbeatsRise", []string{"elsif p_heartbeat > old.heartbeat", "elsif true"}},
	{"attributes as jsonb", "B1_MembersAreShown", []string{"record json", "record jsonb"}},
	{"Evict compares nothing", "B2_EvictComparesTheHeartbeat", []string{"and m.heartbeat = e.heartbeat", ""}},
	{"who leaves stays", "B2_LeftIsRemoved", []string{"m.id = any (p_left)", "m.id = any (p_left) and m.id <> p_id"}},
	{"retired members Sync", "B2_RetiredSyncsAreRefused", []string{"if old.retired", "if false"}},
	{"campaigns compare no epoch", "B3_OneCampaignOfAnEpochSucceeds", []string{"and p_epoch = t.epoch", ""}},
	{"campaigns need no Confirm", "B7_NothingBeforeConfirm", []string{"if t.confirmed", "if true"}},
	{"Evict needs no Confirm", "B7_NothingBeforeConfirm", []string{"or t.confirmed and", "or"}},
	{"any Confirm counts", "B7_NothingBeforeConfirm", []string{"if p_confirm = t.server::text", "if p_confirm <> ''"}},
	{"every table is the same Server", "B7_AnotherTableIsAnotherServer", []string{"gen_random_uuid()", "'7e2cd8a1-3e1b-4d0c-8a57-0a6d2c8c1b11'::uuid"}},
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
		for i := 0; i < len(d.replace); i += 2 {
			require.Contains(t, postgres.Schema(), d.replace[i])
		}
		schema := strings.NewReplacer(d.replace...).Replace(postgres.Schema())
		replicatest.Run(t, func(t *testing.T) replicatest.Store {
			name, db := unique("table"), pool(t, os.Getenv(at))
			return replicatest.Store{
				Open: func() replica.Backend { return postgres.NewWithSchema(postgres.New(db, name), schema) },
				Recreate: func() {
					_, err := db.Exec(t.Context(), "drop table orchestrator_tables, orchestrator_members")
					require.NoError(t, err)
				},
			}
		})
		return
	}
	t.Skip("run by TestKit_FindsEachDefect")
}

func TestKit_FindsEachDefect(t *testing.T) {
	t.Parallel() // it mostly waits for its own server
	s := pgtest.Start(t)
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^TestKit_OnADefect$/"+d.found)
			cmd.Env = append(os.Environ(), chosen+"="+d.name, at+"="+s.URL(pgtest.User, database(t, s)))
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "%s", out)
			require.Contains(t, string(out), "--- FAIL: TestKit_OnADefect/"+d.found, "%s", out)
		})
	}
}
