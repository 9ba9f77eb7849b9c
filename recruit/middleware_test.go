package recruit_test

// The middleware in servers of net/http, with real connections and without sleeps.

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/recruit"
)

// Two requests on one connection are answered while the job drawn by the first still
// runs.
func TestS3_TheMiddlewareDelaysNoResponse(t *testing.T) {
	for name, http2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			type key struct{}
			began, let := make(chan error, 2), make(chan struct{})
			r := always(t, func(ctx context.Context) error {
				if ctx.Value(key{}) != "value" {
					t.Error("the job's context lacks the request's value")
				}
				began <- ctx.Err() // nil: the end of the request does not end the job
				<-let
				return nil
			})
			outer := make(chan struct{}, 2) // the outer handler is about to return
			inner := r.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "answer")
			}))
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				inner.ServeHTTP(w, req.WithContext(context.WithValue(req.Context(), key{}, "value")))
				if len(began) > 0 {
					t.Error("the job began before the handlers had returned")
				}
				outer <- struct{}{}
			}))
			server.EnableHTTP2 = http2
			server.StartTLS()
			defer server.Close()

			get := func() {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
				require.NoError(t, err)
				res, err := server.Client().Do(req)
				require.NoError(t, err)
				defer res.Body.Close()
				require.Equal(t, name == "HTTP/2", res.ProtoMajor == 2)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.Equal(t, "answer", string(body))
				require.EqualValues(t, len("answer"), res.ContentLength, "the response was not flushed early")
				<-outer
			}
			get()
			require.NoError(t, <-began)
			get() // while the first job runs
			close(let)
			require.NoError(t, r.Close(t.Context()))
		})
	}
}

func TestS2_TheMiddlewareDrawsOncePerRequest(t *testing.T) {
	done := make(chan struct{}, 1)
	r := always(t, func(context.Context) error { done <- struct{}{}; return nil })
	h := r.Middleware(http.NotFoundHandler())
	serve := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil)) // its context never ends
		return w
	}
	require.Equal(t, http.StatusNotFound, serve().Code)
	<-done
	r.Uninstall("x")
	for range 10 {
		serve()
	}
	require.NoError(t, r.Close(t.Context()))
	require.EqualValues(t, 10, r.Dismissed())
}

// Prometheus takes a counter that falls for one that was reset.
func TestS4_DismissedNeverFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := always(t, nothing)
		h := r.Middleware(http.NotFoundHandler())
		ctx, end := context.WithCancel(t.Context())
		defer end()
		for range 5 {
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		}
		before := r.Dismissed() // includes calls that have drawn the job
		end()
		synctest.Wait()
		require.EqualValues(t, 5, job(t, r).Recruited)
		require.GreaterOrEqual(t, r.Dismissed(), before)

		r.Uninstall("x")
		for range 5 {
			require.Equal(t, recruit.Dismissed, r.Enlist(t.Context()))
		}
		require.EqualValues(t, 5, r.Dismissed(), "each call counts once")
	})
}

func TestMiddlewareOfNil(t *testing.T) {
	r := always(t, nothing)
	for _, next := range []http.Handler{nil, http.HandlerFunc(nil)} {
		require.PanicsWithValue(t, "recruit: Middleware of a nil handler", func() { r.Middleware(next) })
	}
	for _, r := range []*recruit.Recruiter{nil, {}} {
		require.PanicsWithValue(t, "recruit: Middleware of a Recruiter not created by New", func() { r.Middleware(http.NotFoundHandler()) })
	}
}

func TestS3_NoDrawIfTheHandlerPanics(t *testing.T) {
	r := always(t, nothing)
	h := r.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	require.PanicsWithValue(t, http.ErrAbortHandler, func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
	})
	require.Equal(t, recruit.JobStats{Name: "x", Rate: 1}, job(t, r))
}
