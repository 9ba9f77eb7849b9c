package communicatortest

// Tests of Run and Checks, and of the clusters that the kit accepts, skips and
// refuses.

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// outcomes makes every check on its own cluster, each in a bubble, and returns how
// each ended, by name.
func outcomes(t *testing.T, factory func(*testing.T) Cluster[string, string]) map[string]*recorder {
	t.Helper()
	all := make(map[string]*recorder)
	for _, c := range checks[string, string]() {
		synctest.Test(t, func(t *testing.T) {
			all[c.name()] = record(t.Context(), func(r tb) { c.run(r, factory(t)) })
		})
	}
	return all
}

func TestRunOnTheWallClock(t *testing.T) {
	Run(t, func(*testing.T) Cluster[string, string] {
		c := newReference("")
		c.Timeout = time.Second
		return c
	})
}

func TestChecksInBubbles(t *testing.T) {
	for name, check := range Checks(func(*testing.T) Cluster[string, string] { return newReference("") }) {
		t.Run(name, func(t *testing.T) { synctest.Test(t, check) })
	}
}

func TestChecksCanBeLeftEarly(*testing.T) {
	for range Checks(func(*testing.T) Cluster[string, string] { return newReference("") }) {
		break
	}
}

func TestEveryClauseIsChecked(t *testing.T) {
	seen := map[string]bool{}
	names := map[string]bool{}
	for _, c := range checks[string, string]() {
		seen[c.clause] = true
		require.False(t, names[c.name()], "two checks are named %s", c.name())
		names[c.name()] = true
	}
	for _, clause := range []string{"C1", "C2", "C3", "C4", "C5", "C6", "C7"} {
		require.True(t, seen[clause], clause)
	}
}

func TestAcceptsWhatIsCorrect(t *testing.T) {
	for _, how := range []bug{"", stopsSlowly} {
		for name, r := range outcomes(t, func(*testing.T) Cluster[string, string] { return newReference(how) }) {
			require.Empty(t, r.failure, name)
			require.Empty(t, r.skipped, name)
		}
	}
}

func TestSkipsWhatItCannotCheck(t *testing.T) {
	want := map[string]string{
		"C1/OneWorkerHeld": "Hold", "C1/OneWorkerCut": "Cut",
		"C3/WhileHeld": "Hold", "C3/WhileCut": "Cut",
		"C6/RefusedIsNotDone": "Refuse", "C6/HeldIsNotRejected": "Hold", "C6/Strangers": "Strangers",
		"C7/DelayedPastList": "Hold", "C7/RemoveWaits": "Linger",
	}
	found := outcomes(t, func(*testing.T) Cluster[string, string] {
		c := newReference("")
		return Cluster[string, string]{
			Communicator: struct {
				orchestrator.Communicator[string, string]
			}{c.Communicator},
			Workers: c.Workers,
			Tasks:   c.Tasks,
		}
	})
	for name, r := range found {
		require.Empty(t, r.failure, name)
		switch {
		case strings.HasSuffix(name, "/Apply"):
			require.Contains(t, r.skipped, "not an Applier", name)
		case want[name] != "":
			require.Contains(t, r.skipped, "Cluster."+want[name], name)
		default:
			require.Empty(t, r.skipped, name)
		}
	}
}

func TestRefusesAClusterThatCannotBeChecked(t *testing.T) {
	found := outcomes(t, func(*testing.T) Cluster[string, string] {
		return Cluster[string, string]{
			Workers:   []string{"w1", "w2", "w2"},
			Tasks:     []string{"a", "b"},
			Strangers: []string{"w1"},
			Timeout:   -1,
		}
	})
	for _, r := range found {
		for _, field := range []string{"Communicator", "Workers", "Tasks", "Strangers", "Timeout"} {
			require.Contains(t, r.failure, "Cluster."+field)
		}
	}
}

func TestRefusesAClusterThatRunsSomething(t *testing.T) {
	found := outcomes(t, func(t *testing.T) Cluster[string, string] {
		c := newReference("")
		require.NoError(t, c.Communicator.Add(t.Context(), "w2", "a"))
		return c
	})
	for name, r := range found {
		require.Contains(t, r.failure, "a fresh cluster runs nothing", name)
	}
}

// TestBoundsAnApplyThatNeverReturns covers calls with several writes.
func TestBoundsAnApplyThatNeverReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		c := newReference("")
		inner := c.Communicator
		c.Communicator = struct {
			orchestrator.Communicator[string, string]
			orchestrator.Applier[string, string]
		}{inner, endless(end)}
		for _, check := range checks[string, string]() {
			if check.name() == "C5/SeveralWrites/Apply" {
				r := record(t.Context(), func(r tb) { check.run(r, c) })
				require.Contains(t, r.failure, errEndless.Error())
			}
		}
	})
}

// endless is an Applier that does not answer before it is closed.
type endless chan struct{}

func (e endless) Apply(context.Context, string, []orchestrator.Write[string]) []error {
	<-e
	return nil
}
