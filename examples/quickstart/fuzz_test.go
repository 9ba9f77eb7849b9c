package main

// Fuzz tests of all input from outside: a worker's answers and a leader's requests.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// FuzzAnswer: a nil error means status 200 and, from List, a whole list. The meaning
// of a status does not depend on the body.
func FuzzAnswer(f *testing.F) {
	f.Add(200, []byte(`{"Tasks":[{"Name":"a","URL":"http://a"}],"Pinned":1}`))
	f.Add(200, []byte(`{"Tasks":[{"Name":"a"}]} and more`))
	f.Add(200, []byte("{}"))
	f.Add(202, []byte("stopping"))
	f.Add(409, []byte{0xff})
	f.Add(412, []byte("deposed"))
	f.Add(422, []byte(nil))
	f.Add(500, []byte("{}"))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		if status < 200 || status > 999 {
			return // not a final answer
		}
		c := communicator{client: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: status, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(body)), Request: r}, nil
		})}}
		m := member{Name: "w", URL: "http://w/1"}
		tasks, err := c.List(t.Context(), m)
		if err == nil {
			require.Equal(t, http.StatusOK, status)
			var want list
			require.NoError(t, json.Unmarshal(body, &want))
			require.NotNil(t, tasks)
			require.Equal(t, want.Tasks, tasks)
		}
		for _, err := range []error{c.Add(t.Context(), m, endpoint{Name: "a"}), c.Remove(t.Context(), m, endpoint{Name: "a"})} {
			require.Equal(t, status == http.StatusOK, err == nil)
			require.Equal(t, status == statusRejected || status == statusStale, errors.Is(err, orchestrator.ErrRejected))
			require.Equal(t, status == statusStale, errors.Is(err, orchestrator.ErrStale))
			require.Equal(t, status == statusStopping, errors.Is(err, orchestrator.ErrStopping))
			require.Equal(t, status == statusDeposed, errors.Is(err, orchestrator.ErrDeposed))
		}
	})
}

// recorder is a runner that records its calls.
type recorder struct {
	calls int
	term  orchestrator.Term
	of    bool
	task  endpoint
}

func (r *recorder) note(ctx context.Context, e endpoint) {
	r.calls++
	r.term, r.of = orchestrator.TermFromContext(ctx)
	r.task = e
}

func (r *recorder) List(ctx context.Context) ([]endpoint, error) {
	r.note(ctx, endpoint{})
	return nil, nil
}

func (r *recorder) Add(ctx context.Context, e endpoint) error {
	r.note(ctx, e)
	return nil
}

func (r *recorder) Remove(ctx context.Context, e endpoint) error {
	r.note(ctx, e)
	return nil
}

// FuzzRequest: a request is either delivered whole and with its term, or refused.
func FuzzRequest(f *testing.F) {
	f.Add("add", "1", "2", []byte(`{"Name":"a","URL":"http://a"}`))
	f.Add("list", "", "", []byte("true"))
	f.Add("list", "3", "4", []byte("null"))
	f.Add("remove", "18446744073709551615", "-1", []byte(`{`))
	f.Add("add", "", "7", []byte(`{} {}`))
	f.Fuzz(func(t *testing.T, method, epoch, number string, body []byte) {
		for _, r := range method + epoch + number {
			if r <= ' ' || r > '~' {
				return // such a request never arrives
			}
		}
		if strings.ContainsAny(method, "/?#%") {
			return
		}
		tasks := &recorder{}
		r := httptest.NewRequest(http.MethodPost, "/w/1/x", bytes.NewReader(body))
		r.URL.Path = "/w/1/" + method
		r.Header.Set(epochHeader, epoch)
		r.Header.Set(numberHeader, number)
		w := httptest.NewRecorder()
		newHandler("/w/1", tasks).ServeHTTP(w, r)
		require.Equal(t, w.Code == http.StatusOK, tasks.calls == 1, "%d", w.Code)
		if tasks.calls == 0 {
			return
		}
		require.Equal(t, epoch != "", tasks.of)
		if tasks.of {
			require.Equal(t, strconv.FormatUint(tasks.term.Epoch, 10), strings.TrimLeft(epoch, "0")+zero(epoch))
			require.Equal(t, strconv.FormatUint(tasks.term.Number, 10), strings.TrimLeft(number, "0")+zero(number))
		}
		if method != "list" {
			var want endpoint
			require.NoError(t, json.Unmarshal(body, &want))
			require.Equal(t, want, tasks.task)
		}
	})
}

// FuzzRegistration: a registration adds a worker with a name and a URL, or is refused.
func FuzzRegistration(f *testing.F) {
	f.Add([]byte(`{"Name":"w1","URL":"http://127.0.0.1:1/w1/1"}`))
	f.Add([]byte(`{"Name":"w1"}`))
	f.Add([]byte(`{} {}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		var added []member
		r := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
		w := httptest.NewRecorder()
		registrations(func(m member) error { added = append(added, m); return nil }).ServeHTTP(w, r)
		require.Equal(t, w.Code == http.StatusOK, len(added) == 1, "%d", w.Code)
		for _, m := range added {
			require.NotEmpty(t, m.Name)
			require.NotEmpty(t, m.URL)
		}
	})
}

// zero returns "0" if number has only zeros.
func zero(number string) string {
	if strings.Trim(number, "0") == "" {
		return "0"
	}
	return ""
}
