package dashboard_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// asText returns an answer as text, and what it says to programs.
func asText(t *testing.T, h http.Handler, target, accept string) (text string, about api.Text) {
	t.Helper()
	r := request(http.MethodGet, "/api/v1/"+target)
	r.Header.Set("Accept", accept)
	w := serve(h, r)
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal([]byte(w.Header().Get(api.TextHeader)), &about))
	return w.Body.String(), about
}

// TestD24_Text: an answer as text says to programs what it is a part of, and has its own entity tag.
func TestD24_Text(t *testing.T) {
	f := newFleet(t, 3, 9, nil)
	f.terms(1)
	text, about := asText(t, f.dashboard, "workers?sort=name&limit=2", "text/plain; view=names")
	require.Equal(t, "w1\nw2\n", text)
	require.Equal(t, api.Text{Header: about.Header, Page: api.Page{Total: 3, Matching: 3, After: about.After}, Rows: 2}, about)
	require.EqualValues(t, 1, about.Term.Number)
	rest, _ := asText(t, f.dashboard, "workers?sort=name&after="+about.After, "text/plain")
	require.Regexp(t, `^w3 +answering `, rest, "without a heading")

	r := request(http.MethodGet, "/api/v1/workers")
	tags := make(map[string]bool)
	for _, accept := range []string{"", "application/json", "text/plain", "text/plain; view=names", "text/plain; width=60"} {
		r.Header.Set("Accept", accept)
		w := serve(f.dashboard, r)
		require.Contains(t, w.Header().Get("Vary"), "Accept,")
		tags[w.Header().Get("ETag")] = true
	}
	require.Len(t, tags, 4)
	r.Header.Set("Accept", "text/plain; view=nonsense")
	require.Contains(t, refused(t, f.dashboard, r).Detail, "no view “nonsense” of workers as text")
}

// TestD10_Text: a text that users chose cannot add a line or a cell, or move the cursor.
func TestD10_Text(t *testing.T) {
	o, err := orchestrator.New(make(lists), orchestrator.WithDryRun())
	require.NoError(t, err)
	const hostile = "x\x1b[2J\n\t\u202ey"
	require.NoError(t, o.AddWorker("w"))
	require.NoError(t, o.AddTask(hostile))
	h, err := dashboard.New(dashboard.WithTitle(hostile))
	require.NoError(t, err)
	defer dashboard.Lead(h, o)()
	_ = o.NextTerm(t.Context())
	for _, target := range []string{"status", "workers", "worker?name=w", "tasks", "task?name=x%1b[2J%0a%09%E2%80%AEy", "what-if", "changes", "terms"} {
		text, _ := asText(t, h, target, "text/plain")
		for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
			require.Equal(t, history.Printable(line), line, target)
		}
		require.NotContains(t, text, "\ny", target)
	}
}

// TestT16_OneClock: times are in UTC, wherever the server and the reader are.
func TestT16_OneClock(t *testing.T) {
	at := time.Date(2026, 11, 27, 23, 30, 0, 0, time.FixedZone("", 3600))
	f := newFleet(t, 2, 2, nil)
	f.terms(1)
	f.Hold(at.AddDate(100, 0, 0), "deploy")
	require.NoError(t, f.AddWorker("w9"))
	f.terms(1)
	text, _ := asText(t, f.dashboard, "task?name=t1", "text/plain; view=why")
	require.Contains(t, text, "deploy, until 2126-11-27 22:30:00 UTC at the latest.\n")
}

// TestD19_Replay: the end of a log is shown as the present, and nothing of it can be changed.
func TestD19_Replay(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ring, err := history.New()
		require.NoError(t, err)
		f := newFleet(t, 3, 9, nil, dashboard.WithHistory(ring))
		f.Refuse(func(op orchestrator.Op, _, task string) error {
			if op == orchestrator.OpAdd && task == "t1" {
				return errors.New("no disk")
			}
			return nil
		})
		f.terms(2)
		f.Cut("w3")
		f.terms(2)
		h, err := dashboard.New(dashboard.WithHistory(ring))
		require.NoError(t, err)
		h.Replay()
		for _, target := range []string{"changes", "tasks?waiting=any", "terms"} {
			now, _ := asText(t, f.dashboard, target, "text/plain; view=names")
			past, _ := asText(t, h, target, "text/plain; view=names")
			require.Equal(t, now, past, target)
		}
		for path := range map[string]bool{"": true, "workers": true, "worker?name=w3": true, "tasks": true, "task?name=t1": true, "terms": true, "about": true} {
			require.Equal(t, http.StatusOK, serve(h, request(http.MethodGet, "/"+path)).Code, path)
		}
		require.NotEqual(t, http.StatusOK, serve(h, request(http.MethodGet, "/api/v1/what-if?drain=w1")).Code)
		require.Equal(t, http.StatusForbidden, serve(h, request(http.MethodPost, "/api/v1/drain?worker=w1")).Code)
	})
}
