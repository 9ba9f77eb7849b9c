package dashboard_test

// Moves for an even spread that wait (T16), and workers that fell (T17), as they are shown.

import (
	"html"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// requireShown checks that pages contain texts.
func (f *fleet) requireShown(texts map[string]string) {
	f.t.Helper()
	for target, text := range texts {
		w := serve(f.dashboard, request(http.MethodGet, target))
		require.Equal(f.t, http.StatusOK, w.Code, target)
		require.Contains(f.t, html.UnescapeString(w.Body.String()), text, target)
	}
}

// A hold is shown with the moves that wait. It is no problem, and the spread is not called even.
func TestT16_HeldMovesAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 8, nil)
		until := time.Now().Add(time.Hour)
		f.Hold(until, "deploy <3>\n")
		f.terms(1)
		require.Contains(t, f.status().Summary, "evenly")
		f.requireShown(map[string]string{"/": "<p>Moves for an even spread wait: deploy <3>\\u000a, until 2000-01-01 01:00:00 UTC at the latest.</p>"})
		for _, w := range []string{"w3", "w4"} {
			f.Start(w)
			require.NoError(t, f.AddWorker(w))
		}
		f.terms(1)
		f.requireSummary("All 8 instances run.")
		status := f.status()
		require.Equal(t, []orchestrator.Hold{{Why: "deploy <3>\\u000a", Until: until.UTC()}}, status.Holds)
		require.Equal(t, 4, status.MovesHeld)
		const held = "4 moves for an even spread wait: deploy <3>\\u000a, until 2000-01-01 01:00:00 UTC at the latest"
		require.Equal(t, held, f.dashboard.HeldText(status.MovesHeld, status.Holds))
		plan := get[api.WhatIf](t, f.dashboard, "/api/v1/what-if")
		require.Equal(t, "The next term would change nothing; each open worker would have 0 to 4 tasks. "+held+".", plan.Verdict)
		require.Equal(t, status.Holds, plan.Plan.Holds)
		require.Equal(t, status.Holds, get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t1").Holds)
		row := get[api.Terms](t, f.dashboard, "/api/v1/terms").Terms[0]
		require.Equal(t, status.Holds, row.Holds)
		require.Equal(t, 4, row.Stats.MovesHeld)
		f.requireShown(map[string]string{
			"/": "<p>" + held + ".</p>", "/terms": held, "/term?number=2": held, "/what-if?add=w9": "moves for an even spread wait: deploy",
			"/task?name=t1": "<p>Moves for an even spread wait: deploy <3>\\u000a, until 2000-01-01 01:00:00 UTC at the latest.</p>",
		})
		f.Hold(time.Time{}, "deploy <3>\n")
		f.terms(1)
		f.requireSummary("All 8 instances run, evenly.")
		require.Empty(t, f.status().Holds)
	})
}

// Equal numbers of tasks are not even while a move for their weights waits.
func TestT16_UnevenWeightsAreNotEven(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 4, nil)
		f.terms(1)
		f.Hold(time.Now().Add(time.Hour), "deploy")
		for _, task := range f.ListExpectedTasks() {
			require.NoError(t, f.AddTask(task.Name, orchestrator.WithTaskWeight(1)))
		}
		for _, task := range f.RunsOn("w1") {
			require.NoError(t, f.AddTask(task, orchestrator.WithTaskWeight(100)))
		}
		f.terms(1)
		require.Zero(t, f.LastPlan().Stats.Spread)
		require.Positive(t, f.status().MovesHeld)
		f.requireSummary("All 4 instances run.")
	})
}

// A silent worker is a problem, and what it holds is beside it.
func TestT16_ASilentWorkerHolds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		f.Cut("w1")
		f.terms(1)
		f.Start("w4")
		require.NoError(t, f.AddWorker("w4"))
		f.terms(1)
		require.Len(t, f.problems(), 1)
		f.requireShown(map[string]string{"/": "<p>2 moves for an even spread wait: worker w1 is silent, until 2000-01-01 00:01:01 UTC at the latest.</p>"})
	})
}

// A worker that fell says until when it gains nothing, wherever it is explained.
func TestT17_FallsAreShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 4, 12, nil)
		f.terms(1)
		for range 3 {
			f.Kill("w1")
			f.RemoveWorker("w1")
			f.terms(1)
			f.Start("w1")
			require.NoError(t, f.AddWorker("w1", orchestrator.WithWorkerSettings(orchestrator.WorkerSettings{MaxTasks: 3})))
			require.NoError(t, f.AddTask("t0", orchestrator.WithTaskInstances(4)))
			f.terms(1)
		}
		w := get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w1")
		require.NotNil(t, w.Fallen)
		const fell = "fell 3 times, less than ten minutes apart; gains nothing for an even spread until 2000-01-01 00:01:06 UTC"
		require.Equal(t, fell, f.dashboard.FellText(w.Fallen.Err.Error(), w.Fallen.Ends))
		require.Equal(t, []api.Pause{*w.Fallen}, w.Pauses)
		task := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t1")
		i := len(task.Reasons) - 3 // after the worker that has it
		require.Equal(t, "w1", task.Reasons[i].Worker.Name)
		require.Equal(t, w.Fallen.Ends, task.Reasons[i].Ends)
		f.requireShown(map[string]string{
			"/workers": fell, "/worker?name=w1": "It " + fell + ".", "/task?name=t1": "the worker " + fell,
		})
		f.requireShown(map[string]string{"/worker?name=w1": "moves to it for an even spread"})
		for _, text := range []string{`<h2 id="pauses">Paused</h2>`, `Times</th><th scope="col">Until</th><th scope="col">Why</th>`, "00:01:06.000 UTC</time></td><td><span class=\"err\">fell 3 times"} {
			f.requireShown(map[string]string{"/worker?name=w1": text})
		}
		require.Empty(t, f.problems())
	})
}

// The page of an earlier term links to its own lists, not to those of the last term.
func TestD26_APastTermHasItsOwnLists(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 3, 9, nil)
		f.terms(1)
		f.Cut("w2")
		f.terms(1)
		held, term := f.LastPlan().Waiting, f.LastPlan().Stats.Term
		require.Len(t, held, 3)
		f.Heal()
		f.terms(3)
		page := "term?number=" + strconv.FormatUint(term.Number, 10)
		detail := get[api.TermDetail](t, f.dashboard, "/api/v1/"+page)
		require.Equal(t, 3, detail.WaitingTotal)
		require.Equal(t, held[0].Task, detail.Waiting[0].Task)
		body := serve(f.dashboard, request(http.MethodGet, "/"+page)).Body.String()
		require.Contains(t, body, `<a href="#waiting">held</a>`)
		require.NotContains(t, body, `href="tasks?waiting=`)
		require.NotContains(t, body, `href="workers?state=`)
		require.Contains(t, body, `<h2 id="waiting">What waited</h2>`)
		require.Contains(t, body, `may run on a worker that does not answer (<a class="name" href="worker?name=w2">`)
	})
}

// A move for an even spread says what made it uneven, wherever it is shown (D32).
func TestD32_WhyItMoved(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleet(t, 2, 9, nil)
		f.terms(2)
		f.Hold(time.Now().Add(time.Hour), "deploy")
		f.terms(1)
		f.Hold(time.Time{}, "deploy")
		f.Start("w3")
		require.NoError(t, f.AddWorker("w3"))
		f.terms(2)
		moved := f.RunsOn("w3")[0]
		cause := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name="+moved).Changes[0].Cause
		require.NotNil(t, cause)
		require.Equal(t, history.CauseJoined, cause.Kind)
		require.Equal(t, []string{"w3"}, cause.Workers)
		require.Equal(t, uint64(4), cause.Term.Number)
		require.Equal(t, cause, get[api.TermDetail](t, f.dashboard, "/api/v1/term?number=4").Cause)
		const shown = `<a class="name" href="worker?name=w3"><bdi>w3</bdi></a> joined in <a class="aside" href="term?number=4&epoch=7">term 4</a>`
		f.requireShown(map[string]string{"/": "rebalance: " + shown, "/task?name=" + moved: "rebalance: " + shown, "/term?number=4": "<p>The spread was uneven: " + shown + ".</p>"})

		r := request(http.MethodGet, "/api/v1/task?name="+moved)
		r.Header.Set("Accept", "text/plain; view=why")
		require.Contains(t, serve(f.dashboard, r).Body.String(), "last move for an even spread: to w3 in term 4: w3 joined in term 4\n")

		f.Hold(time.Now().Add(time.Hour), "deploy")
		f.Start("w4")
		require.NoError(t, f.AddWorker("w4"))
		f.terms(3)
		f.Hold(time.Time{}, "deploy")
		f.terms(1)
		f.requireShown(map[string]string{"/task?name=" + f.RunsOn("w4")[0]: "rebalance: the hold “deploy” ended in <a"})
	})
}
