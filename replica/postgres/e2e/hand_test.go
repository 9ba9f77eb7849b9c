package e2e_test

// Statements that edit the tables by hand.

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/f8949c05/orchestrator/internal/pgtest"
)

// tables are those of schema.sql.
var tables = strings.Fields("replica_tables replica_members replica_beats replica_reports replica_orders replica_counts replica_tasks replica_removed")

// values are what a column of a type is set to; %[1]s is its name, and %[2]d a random number.
// The lease is no longer than those of the replicas, for which nothing waits otherwise.
var values = map[string][]string{
	"text":                     {"'garbage %[2]d'", "'%%'", "''"},
	"boolean":                  {"not %[1]s"},
	"bigint":                   {"0", "-1", "%[2]d", "%[1]s - 1", "%[1]s + 1", "%[1]s * 2", "1::bigint << 61", "1::bigint << 62", "9223372036854775807", "-9223372036854775808"},
	"ARRAY":                    {"'{}'", "'{%[2]d}'", "%[1]s[2:]", "%[1]s || %[1]s", "%[1]s || null"},
	"xid8":                     {"'0'", "'9223372036854775807'", "pg_current_xact_id()"},
	"timestamp with time zone": {"'infinity'", "'-infinity'", "now() - interval '2 days'"},
	"jsonb":                    {"'null'", "'{}'", "'[]'", "'%[2]d'", `'"garbage"'`},
}

// member is a set of JSON values, one of which a random key of a record is set to.
var member = []string{"null", `""`, `"garbage %[2]d"`, "%[2]d", "-1", "1e30", `"9223372036854775807"`, `"18446744073709551615"`, "[]", "{}", "true"}

// byHand returns a block that executes a statement while nobody else writes a table. It does
// nothing if the statement violates a constraint.
func byHand(name, statement string) string {
	return fmt.Sprintf(`do $$ begin
	lock table %s in exclusive mode;
	%s;
exception when integrity_constraint_violation or data_exception then null;
end $$`, name, statement)
}

// oneOf is a condition that holds for one random row of the table.
func oneOf(random *rand.Rand, name string) string {
	return fmt.Sprintf("ctid = (select ctid from %s where name = '%s' order by md5(%d || ctid::text) limit 1)", name, table, random.Uint32())
}

func deleteRow(random *rand.Rand, _ *pgtest.Server, name string) string {
	return fmt.Sprintf("delete from %s where %s", name, oneOf(random, name))
}

// editRow sets a random column, or something in its JSON, to something else.
func editRow(random *rand.Rand, s *pgtest.Server, name string) string {
	columns := strings.Fields(s.SQL(database, fmt.Sprintf(`select column_name || '|' || replace(data_type, ' ', '_')
		from information_schema.columns where table_name = '%s' order by ordinal_position`, name)))
	column, kind, _ := strings.Cut(columns[random.IntN(len(columns))], "|")
	pick := func(from []string) string {
		value := from[random.IntN(len(from))]
		return strings.ReplaceAll(strings.ReplaceAll(value, "%[1]s", column), "%[2]d", fmt.Sprint(random.Uint32()))
	}
	value := pick(values[strings.ReplaceAll(kind, "_", " ")])
	switch {
	case column == "lease":
		value = pick([]string{"-1", "0", "1", "%[1]s - 1"})
	case kind == "jsonb" && random.IntN(4) > 0:
		value = fmt.Sprintf("jsonb_set(%[1]s, array[(select k from jsonb_object_keys(%[1]s) k where k <> 'lease_ns' order by md5(%[2]d || k) limit 1)], '%[3]s')",
			column, random.Uint32(), pick(member))
	}
	return fmt.Sprintf("update %s set %s = %s where %s", name, column, value, oneOf(random, name))
}

// insertRow inserts a copy of a random row with another key. In half of the cases it looks as if
// the procedures had written it.
func insertRow(random *rand.Rand, _ *pgtest.Server, name string) string {
	id := fmt.Sprint(random.Uint32())
	changes := fmt.Sprintf("'id', '%[1]s', 'member', '%[1]s', 'task', 'unknown %[1]s', 'revision', (to_jsonb(r)->>'revision')::bigint + 1", id)
	if random.IntN(2) == 0 {
		changes += ", 'written', pg_current_xact_id()::text"
	}
	if random.IntN(2) == 0 {
		changes += fmt.Sprintf(", 'record', to_jsonb(r)->'record' || '{\"id\": \"%[1]s\", \"member\": \"%[1]s\", \"task\": \"unknown %[1]s\", \"name\": \"unknown %[1]s\"}'", id)
	}
	return fmt.Sprintf("insert into %[1]s select (jsonb_populate_record(r, jsonb_build_object(%[2]s))).* from %[1]s r where r.%[3]s",
		name, changes, oneOf(random, name))
}
