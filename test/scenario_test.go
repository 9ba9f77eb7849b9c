package test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

// Scenarios as text. A file of testdata is a story: what happens to a cluster,
// line by line, and below each line, indented, what comes of it. Lines that
// begin with # are for the reader. The commands are in the table below; see
// scenario_world_test.go for what they do and scenario_print_test.go for how
// what comes of them is written.
//
//	go test ./test -run Scenario           plays them all
//	go test ./test -run Scenario -rewrite  writes what comes of them into the files
//
// Who rewrites a file reads the difference: it is what a user will see.

var rewrite = flag.Bool("rewrite", false, "write what comes of the scenarios into their files")

func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 20)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			var got string
			synctest.Test(t, func(t *testing.T) { got = play(t, string(want)) })
			if *rewrite {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
				return
			}
			require.Equal(t, string(want), got, "if it should be like this: go test ./test -run Scenario -rewrite")
		})
	}
}

// play carries out a story and returns it with what comes of it.
func play(t *testing.T, story string) string {
	t.Helper()
	w := newWorld(t)
	w.commands = commands
	var b strings.Builder
	for i, line := range strings.Split(strings.TrimRight(story, "\n"), "\n") {
		if strings.HasPrefix(line, " ") {
			continue // what came of it before
		}
		b.WriteString(line + "\n")
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		w.at = fmt.Sprintf("line %d: %s", i+1, line)
		c, ok := commands[words[0]]
		require.True(t, ok, "%s: no such command", w.at)
		args := words[1:]
		require.GreaterOrEqual(t, len(args), c.args, "%s: it is: %s %s", w.at, words[0], c.usage)
		c.do(w, args)
		synctest.Wait()
		for _, said := range w.said() {
			b.WriteString("  " + said + "\n")
		}
	}
	w.end()
	return b.String()
}

// command is what a line of a story can begin with.
type command struct {
	usage string
	args  int // how many there are at least
	do    func(*world, []string)
}

// commands are all of them. A name such as t1..t9 stands for nine.
var commands = map[string]command{
	// Those who lead.
	"leader": {"[NAME] [SETTING=VALUE ...]", 0, (*world).leader}, // a new one, which knows what is expected
	"lead":   {"NAME", 1, (*world).lead},                         // whose terms follow
	"term":   {"", 0, (*world).term},
	"terms":  {"N [DURATION]", 1, (*world).terms}, // so many, so far apart; of those that change nothing no rows are shown
	"plan":   {"[drain=A,B] [undrain=…] [silence=…] [lose=…] [workers=…] [tasks=…] [remove=…]", 0, (*world).plan},
	"begin":  {"", 0, (*world).begin},  // a term, and go on while it is under way
	"finish": {"", 0, (*world).finish}, // wait for the end of that term
	"run":    {"EVERY FOR", 2, (*world).run},
	"later":  {"DURATION COMMAND", 2, (*world).later}, // while it runs

	// What is expected.
	"join":    {"WORKER ...", 1, (*world).join}, // starts them as well
	"leave":   {"WORKER ...", 1, each((*world).leave)},
	"drain":   {"WORKER ...", 1, each((*world).drain)},
	"undrain": {"WORKER ...", 1, each((*world).undrain)},
	"tasks":   {"TASK[=INSTANCES] ... [handoff=ORDER]", 1, (*world).tasks},
	"drop":    {"TASK ...", 1, each((*world).drop)},

	// What happens to the workers.
	"start":  {"WORKER ...", 1, func(w *world, names []string) { w.cluster.Start(names...) }},
	"kill":   {"WORKER ...", 1, func(w *world, names []string) { w.cluster.Kill(names...) }},
	"runs":   {"WORKER TASK ...", 2, (*world).runs},     // somebody else told it to
	"repeat": {"WORKER TASK ...", 2, (*world).repeat},   // it lists these once more
	"refuse": {"OP WORKER TASK", 3, (*world).refuse},    // certainly not done; * is any
	"fail":   {"OP WORKER TASK", 3, (*world).fail},      // not done, and nobody knows
	"garble": {"OP WORKER TASK", 3, (*world).garble},    // done, and nobody knows
	"delay":  {"D OP WORKER TASK", 4, (*world).delayed}, // takes longer
	"allow":  {"", 0, func(w *world, _ []string) { w.setRules(nil) }},

	// What happens to the network.
	"cut":   {"WORKER ...", 1, func(w *world, names []string) { w.cluster.Cut(names...) }},
	"hang":  {"WORKER ...", 1, func(w *world, names []string) { w.cluster.Hang(names...) }},
	"stick": {"WORKER ...", 1, func(w *world, names []string) { w.cluster.Stick(names...) }},
	"slow":  {"D WORKER ...", 2, func(w *world, a []string) { w.cluster.Slow(w.duration(a[0]), a[1:]...) }},
	"late":  {"D WORKER ...", 2, func(w *world, a []string) { w.cluster.Late(w.duration(a[0]), a[1:]...) }},
	"mute":  {"WORKER ...", 1, func(w *world, names []string) { w.cluster.LoseAnswers(names...) }},
	"hold":  {"WORKER", 1, (*world).holdWrites},
	"free":  {"WORKER", 1, (*world).freeWrites},
	"heal":  {"[WORKER ...]", 0, func(w *world, names []string) { w.cluster.Heal(names...) }},

	"wait": {"DURATION", 1, (*world).wait},
	"show": {"", 0, (*world).show}, // who runs what now
}

// each makes a command for many names of one for one.
func each(do func(*world, string)) func(*world, []string) {
	return func(w *world, names []string) {
		for _, name := range names {
			do(w, name)
		}
	}
}

// names returns the names that the arguments stand for.
func expand(args []string) (all []string) {
	for _, arg := range args {
		first, last, ok := strings.Cut(arg, "..")
		if !ok {
			all = append(all, arg)
			continue
		}
		prefix := strings.TrimRight(first, "0123456789")
		var from, to int
		_, err := fmt.Sscanf(first+" "+last, prefix+"%d "+prefix+"%d", &from, &to)
		if err != nil {
			all = append(all, arg)
			continue
		}
		for i := from; i <= to; i++ {
			all = append(all, fmt.Sprint(prefix, i))
		}
	}
	return all
}
