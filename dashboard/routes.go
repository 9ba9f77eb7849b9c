package dashboard

// The routes of the API.

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

const (
	apiPrefix = "/api/v1/"
	// mostRows bounds the rows of an answer, and someRows is the default.
	mostRows = 1000
	someRows = 200
)

// route is a route of the API that reads.
type route[W, T comparable] struct {
	name   string
	params []string // that it takes; others are refused
	// fresh: the answer does not depend on the last term only.
	fresh bool
	get   func(*view[W, T], *query) (any, *api.Error)
}

// routes returns the routes that read.
func (h *Handler[W, T]) routes() []route[W, T] {
	rows := func(params ...string) []string { return append(params, "limit", "after") }
	return []route[W, T]{
		{name: "status", fresh: true, get: func(v *view[W, T], _ *query) (any, *api.Error) { return v.status(), nil }},
		{name: "progress", fresh: true, get: func(v *view[W, T], _ *query) (any, *api.Error) { return v.current(), nil }},
		{name: "workers", params: rows("q", "state", "sort"), get: func(v *view[W, T], q *query) (any, *api.Error) { return orError(v.workerList(q)) }},
		{name: "worker", params: rows("name", "nth"), get: func(v *view[W, T], q *query) (any, *api.Error) { return orError(v.worker(q)) }},
		{name: "tasks", params: rows("q", "waiting"), get: func(v *view[W, T], q *query) (any, *api.Error) { return orError(v.taskList(q)) }},
		{name: "task", params: rows("name", "nth"), get: func(v *view[W, T], q *query) (any, *api.Error) { return orError(v.task(q)) }},
		{
			name: "what-if", params: rows("drain", "undrain", "silence", "lose", "add"), fresh: true,
			get: func(v *view[W, T], q *query) (any, *api.Error) { return orError(v.whatIf(q)) },
		},
	}
}

// orError returns an answer, or only the error.
func orError[V any](value V, err *api.Error) (any, *api.Error) {
	if err != nil {
		return nil, err
	}
	return value, nil
}

// apiRoutes adds the routes of the API.
func (h *Handler[W, T]) apiRoutes() {
	for _, rt := range h.routes() {
		h.handle(http.MethodGet, apiPrefix+rt.name, func(w http.ResponseWriter, r *http.Request) {
			v, err := h.view()
			if err != nil {
				h.fail(w, r, err)
				return
			}
			q := newQuery(r.URL.Query(), rt.params)
			value, err := rt.get(v, q)
			if err == nil {
				err = q.err
			}
			if err != nil {
				h.fail(w, r, err)
				return
			}
			tag := v.tag()
			if rt.fresh {
				tag = ""
			}
			h.writeJSON(w, r, http.StatusOK, tag, value)
		})
	}
	h.handle(http.MethodGet, apiPrefix+"settings", func(w http.ResponseWriter, r *http.Request) {
		v, err := h.view()
		if err != nil {
			h.fail(w, r, err)
			return
		}
		h.writeJSON(w, r, http.StatusOK, "", v.settings(r))
	})
}

// query is the parameters of a request. Its methods keep the first error.
type query struct {
	values url.Values
	err    *api.Error
}

func newQuery(values url.Values, params []string) *query {
	q := &query{values: values}
	for name := range values {
		if !slices.Contains(params, name) {
			q.fail("The parameter %q is not known here. Known are: %s.", printable(name), strings.Join(params, ", "))
		}
	}
	return q
}

// fail keeps an error of the client.
func (q *query) fail(format string, args ...any) {
	if q.err == nil {
		q.err = problem(http.StatusBadRequest, fmt.Sprintf(format, args...))
	}
}

// text returns a parameter, or "".
func (q *query) text(name string) string { return q.values.Get(name) }

// number returns a parameter that is a number of at least least, or fallback.
func (q *query) number(name string, fallback, least int) int {
	text := q.values.Get(name)
	if text == "" {
		return fallback
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least {
		q.fail("The parameter %s is %q: must be a number of at least %d.", name, printable(text), least)
		return fallback
	}
	return n
}

// limit returns how many rows the answer may have.
func (q *query) limit(fallback int) int { return min(q.number("limit", fallback, 1), mostRows) }

// oneOf returns a parameter that is one of some words, or "".
func (q *query) oneOf(name string, words ...string) string {
	text := q.values.Get(name)
	if text != "" && !slices.Contains(words, text) {
		q.fail("The parameter %s is %q: must be one of %s.", name, printable(text), strings.Join(words, ", "))
		return ""
	}
	return text
}
