package main

// The output of every command in every format, from a real handler on a fleet in memory. The
// clock is that of a bubble, so that times are the same in each run.

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/history"
)

// Run go test ./cmd/orchctl -update to write the golden files anew.
var update = flag.Bool("update", false, "write the golden files")

// fleet is a cluster with its leader.
type fleet struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	t       *testing.T
	depose  func() // the dashboard no longer leads
	history string // the file
}

const (
	hostile = "w6\u202egnp\x1b[2J"
	broken  = "tenant-07"
)

// newFleet serves the dashboard of a new leader of the cluster at an address.
func (n *network) newFleet(cluster *memory.Cluster[string, string], address string, epoch uint64, opts ...orchestrator.Option) *fleet {
	f := &fleet{Cluster: cluster, t: n.t}
	var err error
	f.Orchestrator, err = orchestrator.New(f.Cluster, append([]orchestrator.Option{
		orchestrator.WithSeed(0), orchestrator.WithEpoch(epoch), orchestrator.WithGracePeriod(3 * time.Second),
		orchestrator.WithCommunicatorTimeout(200 * time.Millisecond),
	}, opts...)...)
	require.NoError(n.t, err)
	drain := func(_ context.Context, w string) error { return f.DrainWorker(w) }
	undrain := func(_ context.Context, w string) error { return f.UndrainWorker(w) }
	f.history = filepath.Join(n.t.TempDir(), "history")
	ring, err := history.New(history.WithFile(f.history, 1<<20, 2))
	require.NoError(n.t, err)
	n.t.Cleanup(func() { require.NoError(n.t, ring.Close()) })
	h, err := dashboard.New(dashboard.WithTitle("tenants"), dashboard.WithDrain(drain, undrain), dashboard.WithHistory(ring))
	require.NoError(n.t, err)
	f.depose = dashboard.Lead(h, f.Orchestrator)
	n.t.Cleanup(f.depose)
	n.serve(address, h)
	return f
}

func newCluster(t *testing.T) *memory.Cluster[string, string] {
	c, err := memory.New[string, string](nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close(context.WithoutCancel(t.Context()))) })
	return c
}

// terms runs terms, a second apart.
func (f *fleet) terms(n int) {
	for range n {
		_ = f.NextTerm(f.t.Context()) // the answers show its error
		time.Sleep(time.Second)
	}
}

// withHistory makes a fleet in which everything happens that has a place in the answers.
func (n *network) withHistory() *fleet {
	f := n.newFleet(newCluster(n.t), "127.0.0.1:1", 7)
	workers := []string{"w1", "w2", "w3", "w4", "w5", hostile}
	for i, w := range workers { // no two answer at the same moment: the order would be open
		f.Slow(20*time.Millisecond+time.Duration(i)*time.Microsecond, w)
	}
	f.Start(workers...)
	for _, w := range workers {
		require.NoError(n.t, f.AddWorker(w))
	}
	var tasks []orchestrator.Task[string]
	for i := range 12 {
		tasks = append(tasks, orchestrator.Task[string]{Name: fmt.Sprintf("tenant-%02d", i)})
	}
	tasks = append(tasks, orchestrator.Task[string]{Name: "everywhere", Instances: 7}, orchestrator.Task[string]{Name: "\u202elive\n"})
	require.NoError(n.t, f.UpdateTasks(tasks))
	f.Refuse(func(op orchestrator.Op, w, task string) error {
		switch {
		case op != orchestrator.OpAdd:
			return nil
		case task == broken:
			return fmt.Errorf("%w: schema version 7 is not known", orchestrator.ErrRejected)
		case w == "w5":
			return errors.New("disk \x1bfull")
		}
		return nil
	})
	f.terms(3)
	f.Kill("w4")
	f.terms(5)
	require.NoError(n.t, f.DrainWorker("w3"))
	f.Cut("w1")
	f.terms(2)
	return f
}

func TestD24_Golden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.withHistory()
		n.serve("127.0.0.1:2", problem(503, "This process does not lead.", "http://127.0.0.1:1"))
		for _, line := range []string{
			"status", "status -check", "workers", "worker w3", "worker " + strconv.Quote(hostile), "tasks", "tasks tenant-0", "task everywhere",
			"why everywhere", "why " + broken, "terms -limit 3", "changes -limit 5", "changes -worker w4 -since 1h", "waiting", "waiting -kind held",
			"quarantined", "what-if -lose w2 -add w9",
			"worker nonsense", "why nonsense", "what-if -drain nonsense", "drain nonsense -yes",
		} {
			for _, format := range []string{formatTable, formatJSON, formatName} {
				args := append(strings.Fields(line), "-o", format)
				n.golden(fmt.Sprintf("%s.%s", line, format), n.run("http://127.0.0.1:2", args...))
			}
		}
		for _, format := range []string{formatTable, formatJSON, formatName} {
			n.golden("replay."+format, n.run("", "replay", f.history, "-limit", "3", "-o", format))
			for _, line := range []string{"workers", "worker w4", "worker nonsense", "task everywhere", "task nonsense", "changes -limit 5", "waiting", "quarantined", "status"} {
				args := append([]string{"replay", f.history}, strings.Fields(line)...)
				n.golden(fmt.Sprintf("replay %s.%s", line, format), n.run("", append(args, "-o", format)...))
			}
		}
		for _, line := range []string{"waiting", "waiting -kind held", "waiting -kind missing", "quarantined", "changes -limit 0", "changes -worker w4", "terms -o name -limit 0", "workers -o name -state lost"} {
			now := n.run("http://127.0.0.1:1", strings.Fields(line)...)
			past := n.run("", append([]string{"replay", f.history}, strings.Fields(line)...)...)
			require.Equal(t, now, past, "D19: %s", line)
		}
		n.serve("127.0.0.1:3", problem(403, "The request is not authorized.", ""))
		n.golden("refused", n.run("http://127.0.0.1:3", "status"))
		n.golden("nobody", n.run("http://127.0.0.1:4", "status"))
		n.golden("help", n.run("", "help"))
		n.golden("help drain", n.run("", "help", "drain"))
		n.golden("help changes", n.run("", "changes", "-h"))
		n.golden("status on a narrow terminal", n.terminal("status"))
		n.golden("why on a narrow terminal", n.terminal("why", broken))
		n.golden("changes on a narrow terminal", n.terminal("changes"))
	})
}

// A fleet with labels, zones and limits: the settings, and why tasks have no place.
func TestP12_GoldenPlacement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.newFleet(newCluster(t), "127.0.0.1:1", 7)
		f.Start("w1", "w2", "w3")
		require.NoError(t, f.UpdateWorkers([]orchestrator.Worker[string]{
			{Name: "w1", Zone: "east", Labels: []string{"gpu", "disk=ssd"}, Share: 2, MaxTasks: 1},
			{Name: "w2", Zone: "west", Labels: []string{"gpu", "spot"}},
			{Name: "w3", Zone: "west"},
		}))
		require.NoError(t, f.UpdateTasks([]orchestrator.Task[string]{
			{Name: "render", Requires: []string{"gpu", "!spot"}},
			{Name: "train", Requires: []string{"gpu", "!spot"}, Weight: 5},
			{Name: "mirror", Instances: 3, MaxPerZone: 1},
			{Name: "plain"},
		}))
		f.terms(3)
		for _, line := range []string{"status", "workers", "worker w1", "tasks", "task mirror", "why mirror", "why train", "waiting"} {
			n.golden("placement "+line, n.run("http://127.0.0.1:1", strings.Fields(line)...))
		}
		n.golden("placement replay waiting", n.run("", "replay", f.history, "waiting"))
	})
}

// Moves that a person holds, and a worker that fell again and again.
func TestT16_GoldenCalm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.newFleet(newCluster(t), "127.0.0.1:1", 7)
		f.Start("w1", "w2", "w3", "w4")
		require.NoError(t, f.UpdateWorkers([]orchestrator.Worker[string]{{Name: "w1"}, {Name: "w2"}, {Name: "w3"}}))
		for i := range 12 {
			require.NoError(t, f.AddTask(fmt.Sprintf("tenant-%02d", i)))
		}
		f.terms(1)
		for range 3 {
			f.Kill("w1")
			f.RemoveWorker("w1")
			f.terms(1)
			f.Start("w1")
			require.NoError(t, f.AddWorker("w1"))
			f.terms(1)
		}
		f.Hold(time.Now().Add(30*time.Hour), "deploy of 1.4\x1b")
		require.NoError(t, f.AddWorker("w4"))
		f.terms(1)
		for _, line := range []string{"status", "status -check", "workers", "worker w1", "why tenant-01", "terms -limit 2", "what-if -add w9"} {
			n.golden("calm "+line, n.run("http://127.0.0.1:1", strings.Fields(line)...))
		}
		for _, line := range []string{"workers", "terms -limit 2"} {
			n.golden("calm replay "+line, n.run("", append([]string{"replay", f.history}, strings.Fields(line)...)...))
		}
	})
}

func TestD24_Watch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		f := n.running()
		var watching sync.WaitGroup
		for _, format := range []string{formatTable, formatJSON} {
			ctx, cancel := context.WithTimeout(t.Context(), 5500*time.Millisecond)
			defer cancel()
			watching.Go(func() {
				p, out, errs := n.process()
				code := p.run(ctx, []string{"-server", leader, "watch", "-o", format})
				n.golden("watch."+format, result{code, out.String(), errs.String()})
			})
		}
		time.Sleep(time.Second)
		require.NoError(t, f.DrainWorker("w3"))
		time.Sleep(time.Second)
		f.Kill("w1")
		watching.Wait()
	})
}

// terminal runs a command on a terminal of 60 columns with colours.
func (n *network) terminal(args ...string) result {
	p, out, errs := n.process()
	p.screen = screen{width: 60, colour: true}
	code := p.run(n.t.Context(), append([]string{"-server", "http://127.0.0.1:1"}, args...))
	for line := range strings.Lines(out.String()) {
		for _, colour := range []string{"\x1b[1m", "\x1b[31m", "\x1b[33m", "\x1b[0m"} {
			line = strings.ReplaceAll(line, colour, "")
		}
		require.LessOrEqual(n.t, len([]rune(strings.TrimSuffix(line, "\n"))), 60, line)
	}
	return result{code, out.String(), errs.String()}
}

// golden compares a result with its file.
func (n *network) golden(name string, got result) {
	n.t.Helper()
	text := fmt.Sprintf("exit %d\n", got.code)
	if got.out != "" {
		text += "\nstdout:\n" + got.out
	}
	if got.errors != "" {
		text += "\nstderr:\n" + got.errors
	}
	path := filepath.Join("testdata", fileName(name))
	if *update {
		require.NoError(n.t, os.MkdirAll("testdata", 0o700))
		require.NoError(n.t, os.WriteFile(path, []byte(text), 0o600))
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(n.t, err, "run with -update")
	require.Equal(n.t, string(want), text, "%s; run with -update if the change is wanted", path)
}

// fileName returns a name for a golden file.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && (r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z') {
			return r
		}
		return '_'
	}, name)
}

// The exit codes of the package documentation are those of the commands.
func TestD24_ExitCodes(t *testing.T) {
	seen := make(map[string]bool)
	files, err := filepath.Glob("testdata/*")
	require.NoError(t, err)
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		code, _, _ := strings.Cut(string(text), "\n")
		seen[code] = true
	}
	for code := range 7 {
		require.True(t, seen[fmt.Sprintf("exit %d", code)], "no golden file has exit code %d", code)
	}
}
