package admin_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/admin"
	"github.com/f8949c05/orchestrator/replica/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// member is a replica with its handler.
type member struct {
	*replica.Replica
	http.Handler
	stop context.CancelFunc
	done chan error
}

// start starts a replica.
func start(t *testing.T, table *memory.Table, name string, work func(context.Context, string) error) *member {
	t.Helper()
	r, err := replica.New(table, replica.Names("a", "b", "c", "d", "e", "f"), work, replica.WithName(name), replica.WithService("test"),
		replica.WithLogger(slog.New(slog.DiscardHandler)), replica.WithLease(10*time.Second, time.Second), replica.WithDrain(0),
		replica.WithAttributes(map[string]string{"dashboard": "https://" + name + "/dashboard/"}))
	require.NoError(t, err)
	h, err := admin.New(r, dashboard.WithAuthorize(func(*http.Request) dashboard.Access { return dashboard.ReadAccess }))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	m := &member{r, h, stop, make(chan error, 1)}
	code, text := m.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "this replica holds no lease; its log and its dashboard say why\n", text, "it has no address of the database")
	code, text = m.get("/dashboard/api/v1/status")
	require.Equal(t, http.StatusServiceUnavailable, code, "it knows nothing")
	require.Contains(t, text, "it has not joined yet")
	go func() { m.done <- r.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-m.done; !errors.Is(err, replica.ErrUndrained) { // all leave at once
			require.NoError(t, err)
		}
	})
	return m
}

// get returns the status and the text of an answer.
func (m *member) get(path string) (int, string) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
	text, _ := io.ReadAll(w.Body) // of memory
	return w.Code, string(text)
}

// answer reads an answer of the API.
func (m *member) answer(t *testing.T, path string, into any) bool {
	t.Helper()
	code, text := m.get("/dashboard/api/v1/" + path)
	require.NoError(t, json.Unmarshal([]byte(text), into))
	return code == http.StatusOK
}

func runs(ctx context.Context, _ string) error {
	<-ctx.Done()
	return nil
}

// Every replica shows the same fleet, and what fails on one of them (R-d of the trials).
func TestEveryReplicaShowsAll(t *testing.T) {
	table := memory.New()
	members := []*member{
		start(t, table, "r1", runs),
		start(t, table, "r2", func(context.Context, string) error { return errors.New("disk is full") }),
		start(t, table, "r3", runs),
	}
	leading := 0
	for _, m := range members {
		require.Eventually(t, func() bool {
			var s api.Status
			return m.answer(t, "status", &s) && s.Instances.Running == 6 && s.Workers == orchestrator.WorkerStats{Answering: 3} && len(s.Problems) == 1 && strings.HasPrefix(s.Problems[0].Text, "2 tasks fail again and again on r2#")
		}, 10*time.Second, 50*time.Millisecond)
		var s api.Status
		require.True(t, m.answer(t, "status", &s))
		require.NotEmpty(t, s.Problems)
		require.Equal(t, api.ProblemFailing, s.Problems[0].Kind)
		require.Contains(t, s.Problems[0].Text, "disk is full")
		var workers api.Workers
		require.True(t, m.answer(t, "workers?sort=name", &workers))
		require.Len(t, workers.Workers, 3)
		for _, w := range workers.Workers {
			require.Equal(t, 2, w.Tasks)
		}
		code, metrics := m.get("/metrics")
		require.Equal(t, http.StatusOK, code)
		require.Contains(t, metrics, "orchestrator_replica_members 3")
		require.Contains(t, metrics, "go_goroutines")
		_, page := m.get("/dashboard/")
		if m.Status().Leading {
			leading++
			require.False(t, s.Observed)
			require.NotEmpty(t, s.Changes)
			require.Contains(t, metrics, `orchestrator_instances{state="running"} 6`)
			require.NotContains(t, page, "does not lead")
		} else {
			require.True(t, s.Observed)
			require.Empty(t, s.Changes)
			require.Contains(t, s.Leader, "https://r")
			require.NotContains(t, metrics, "orchestrator_instances{")
			require.Contains(t, page, "This process does not lead: <a href=\"https://r")
		}
		for _, probe := range []string{"/livez", "/readyz"} {
			code, text := m.get(probe)
			require.Equal(t, http.StatusOK, code, text)
		}
	}
	require.Equal(t, 1, leading)
	_, metrics := members[1].get("/metrics")
	require.Regexp(t, `orchestrator_replica_tasks\{state="(backoff|running)"\} 2`, metrics)
}

// The gauges of terms end with the leadership (R-p of the trials).
func TestGaugesEndWithTheLeadership(t *testing.T) {
	m := start(t, memory.New(), "r1", runs)
	require.Eventually(t, func() bool {
		_, metrics := m.get("/metrics")
		return strings.Contains(metrics, `orchestrator_instances{state="running"} 6`)
	}, 10*time.Second, 20*time.Millisecond)
	m.stop()
	require.NoError(t, <-m.done)
	m.done <- nil // for the cleanup
	_, metrics := m.get("/metrics")
	require.NotContains(t, metrics, "orchestrator_instances{")
	require.Contains(t, metrics, `orchestrator_terms_total{result="ok"}`)
	code, _ := m.get("/readyz")
	require.Equal(t, http.StatusServiceUnavailable, code)
}

func TestNew_NamesWhatIsWrong(t *testing.T) {
	_, err := admin.New(nil)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	r, err := replica.New(memory.New(), replica.Names("a"), runs)
	require.NoError(t, err)
	_, err = admin.New(r, dashboard.WithToken("short"))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	h, err := admin.New(r)
	require.NoError(t, err)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/dashboard/", http.NoBody))
	require.Equal(t, http.StatusForbidden, w.Code, "not from this machine")
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", http.NoBody))
	require.Equal(t, http.StatusFound, w.Code)
}

// What is wrong with the Source needs a person, on every replica (D34).
func TestD34_ProblemsOfTheSource(t *testing.T) {
	at := time.Now().Add(-time.Minute)
	require.Empty(t, admin.Problems(replica.Status{}))
	require.Empty(t, admin.Problems(replica.Status{Source: replica.SourceStatus{Failing: time.Now(), Err: "refused"}}), "it may answer soon")
	require.Equal(t, []dashboard.Problem{
		{Kind: "source failing", Err: "refused", Since: at},
		{Kind: "brake", Since: at},
		{Kind: "bad rows", Task: "a", Err: "no", Since: at},
	}, admin.Problems(replica.Status{
		Source:  replica.SourceStatus{Failing: at, Err: "refused", Kept: 7, Braked: at, BadSince: at},
		BadRows: map[string]string{"b": "why", "a": "no"},
	}))
}
