package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/memory"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a cluster, its leader, and a dashboard of it.
type fleet struct {
	*memory.Cluster[string, string]
	*orchestrator.Orchestrator[string, string]
	dashboard *dashboard.Handler
	t         *testing.T
}

type (
	options = []orchestrator.Option
	shows   = []dashboard.Option
)

// newFleet starts workers named w1, w2, … and tasks named t1, t2, … and runs no term.
func newFleet(t *testing.T, workers, tasks int, opts options, shown ...dashboard.Option) *fleet {
	t.Helper()
	f := &fleet{t: t}
	var err error
	f.Cluster, err = memory.New[string, string](nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close(context.WithoutCancel(t.Context()))) })
	f.Orchestrator, err = orchestrator.New(f.Cluster, append(options{orchestrator.WithSeed(0), orchestrator.WithEpoch(7)}, opts...)...)
	require.NoError(t, err)
	for i := range workers {
		f.Start(fmt.Sprintf("w%d", i+1))
		require.NoError(t, f.AddWorker(fmt.Sprintf("w%d", i+1)))
	}
	for i := range tasks {
		require.NoError(t, f.AddTask(fmt.Sprintf("t%d", i+1)))
	}
	f.dashboard, err = dashboard.New(shown...)
	require.NoError(t, err)
	t.Cleanup(dashboard.Lead(f.dashboard, f.Orchestrator))
	return f
}

// inBubble runs a test in a bubble of testing/synctest.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// terms runs terms, a second apart.
func (f *fleet) terms(n int) {
	for range n {
		_ = f.NextTerm(f.t.Context())
		time.Sleep(time.Second)
	}
}

// request returns a request from this machine.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:1234", "localhost:8080"
	return r
}

func serve(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// get decodes the answer of an API route.
func get[V any](t *testing.T, h http.Handler, target string) (value V) {
	t.Helper()
	w := serve(h, request(http.MethodGet, target))
	require.Equal(t, http.StatusOK, w.Code, "%s: %s", target, w.Body)
	d := json.NewDecoder(w.Body)
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&value), target)
	return value
}

// refused returns the error of a request.
func refused(t *testing.T, h http.Handler, r *http.Request) (err api.Error) {
	t.Helper()
	w := serve(h, r)
	require.Equal(t, "application/problem+json", w.Header().Get("Content-Type"))
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &err))
	require.Equal(t, w.Code, err.Status)
	return err
}

func (f *fleet) status() api.Status {
	f.t.Helper()
	return get[api.Status](f.t, f.dashboard, "/api/v1/status")
}

// problems returns the lines of what needs a person.
func (f *fleet) problems() (lines []string) {
	f.t.Helper()
	for _, p := range f.status().Problems {
		lines = append(lines, fmt.Sprintf("%s: %s", p.Kind, p.Text))
	}
	return lines
}
