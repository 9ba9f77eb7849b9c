package api_test

// openapi.yaml and the handlers agree: every path, method and status in the file is
// produced by a handler, and every answer conforms to the file.

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/gorillamux"
	"github.com/stretchr/testify/require"
)

// contract checks answers against the file, and records the statuses seen.
type contract struct {
	t      *testing.T
	doc    *openapi3.T
	router routers.Router
	seen   map[string]bool // method, path and status
}

func newContract(t *testing.T) *contract {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	require.NoError(t, err)
	require.NoError(t, doc.Validate(t.Context()))
	router, err := gorillamux.NewRouter(doc)
	require.NoError(t, err)
	return &contract{t: t, doc: doc, router: router, seen: map[string]bool{}}
}

// check validates an answer against the file.
func (c *contract) check(r *http.Request, answer *http.Response, body []byte) {
	c.t.Helper()
	route, params, err := c.router.FindRoute(r)
	require.NoError(c.t, err, "%s %s", r.Method, r.URL)
	err = openapi3filter.ValidateResponse(c.t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{Request: r, PathParams: params, Route: route},
		Status:                 answer.StatusCode,
		Header:                 answer.Header,
		Body:                   io.NopCloser(bytes.NewReader(body)),
		Options:                &openapi3filter.Options{IncludeResponseStatus: true},
	})
	require.NoError(c.t, err, "%s %s: %s", r.Method, r.URL, answer.Status)
	c.seen[r.Method+" "+route.Path+" "+answer.Status[:3]] = true
}

// declared returns every method, path and status in the file.
func (c *contract) declared() []string {
	var all []string
	for path, item := range c.doc.Paths.Map() {
		for method, operation := range item.Operations() {
			for status := range operation.Responses.Map() {
				all = append(all, method+" "+path+" "+status)
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestOpenAPI_SaysWhatTheHandlersAnswer(t *testing.T) {
	c := newContract(t)
	for _, story := range stories {
		s := newStage(t, story.stage)
		for _, call := range story.calls {
			r := call.request()
			recorder := httptest.NewRecorder()
			s.handler.ServeHTTP(recorder, r)
			answer := recorder.Result()
			body, err := io.ReadAll(answer.Body)
			require.NoError(t, err)
			require.Equal(t, call.status, answer.StatusCode, "%s: %s %s: %s", story.name, call.method, call.target, body)
			if answer.StatusCode != http.StatusMethodNotAllowed && answer.StatusCode != http.StatusNotFound || strings.HasPrefix(call.target, "/work/") {
				c.check(r, answer, body)
			}
		}
	}
	require.Equal(t, c.declared(), slices.Sorted(maps.Keys(c.seen)))
}

// Methods that the file does not declare are refused with 405 and the list of those
// that it does.
func TestOpenAPI_MethodsAreThoseOfTheFile(t *testing.T) {
	c := newContract(t)
	s := newStage(t, stage{})
	for path, item := range c.doc.Paths.Map() {
		var known []string
		for method := range item.Operations() {
			known = append(known, method)
			if method == http.MethodGet {
				known = append(known, http.MethodHead)
			}
		}
		slices.Sort(known)
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"} {
			recorder := httptest.NewRecorder()
			s.handler.ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), method, strings.ReplaceAll(path, "{id}", "x"), nil))
			if slices.Contains(known, method) {
				require.NotEqual(t, http.StatusMethodNotAllowed, recorder.Code, "%s %s", method, path)
				continue
			}
			require.Equal(t, http.StatusMethodNotAllowed, recorder.Code, "%s %s", method, path)
			require.Equal(t, strings.Join(known, ", "), recorder.Header().Get("Allow"))
			require.Equal(t, "application/problem+json", recorder.Header().Get("Content-Type"))
		}
	}
}
