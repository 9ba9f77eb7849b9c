package stage_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := stage.NewLog(&out)
		l.Title("w2 is killed")
		time.Sleep(1500 * time.Millisecond)
		l.Say("%s", strings.Repeat("six ößü ", 20)+"end")
		l.Say("%s", strings.Repeat("x", 90))
		require.Equal(t, `
   0.0s  w2 is killed
   1.5s  six ößü six ößü six ößü six ößü six ößü six ößü six ößü six ößü six ößü
           six ößü six ößü six ößü six ößü six ößü six ößü six ößü six ößü six
           ößü six ößü six ößü end
   1.5s  `+strings.Repeat("x", 90)+"\n", out.String())
	})
}

func TestSayChanges(t *testing.T) {
	move := orchestrator.ChangeKind{Op: orchestrator.Move, Reason: orchestrator.ReasonRebalance}
	start := orchestrator.ChangeKind{Op: orchestrator.Start, Reason: orchestrator.ReasonMissing}
	stop := orchestrator.ChangeKind{Op: orchestrator.Stop, Reason: orchestrator.ReasonUnexpected}
	done := orchestrator.OutcomeDone
	var out strings.Builder
	stage.SayChanges(stage.NewLog(&out), []orchestrator.Change[string, string]{
		{Kind: start, Task: "b", To: "w2", Outcome: done},
		{Kind: start, Task: "a", To: "w2", Outcome: done},
		{Kind: stop, Task: "c", From: "w1", Outcome: done},
		{Kind: move, Task: "a", From: "w2", To: "w1", Outcome: orchestrator.OutcomeReturned, Err: errors.New("no room")},
	})
	require.Equal(t, fmt.Sprint(
		"   0.0s  move  w2 → w1 (rebalance), returned: no room: a\n",
		"   0.0s  start on w2 (missing): a b\n",
		"   0.0s  stop  on w1 (unexpected): c\n",
	), out.String())
}
