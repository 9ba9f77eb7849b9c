package dashboard

// The routes of the API.

import (
	"cmp"
	_ "embed" // for openapi.json
	"net/http"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

const apiPrefix = "/api/v1/"

//go:embed api/openapi.json
var openAPI []byte

// route is a route of the API that reads.
type route struct {
	name   string
	params []string // that it takes; others are refused
	// fresh: the answer depends on more than the last term, such as the time or the caller.
	fresh bool
	get   func(*view, *query) (any, *api.Error)
}

// routes returns the routes that read.
func (h *Handler) routes() []route {
	rows := func(params ...string) []string { return append(params, "limit", "after") }
	return []route{
		{name: "status", fresh: true, get: func(v *view, _ *query) (any, *api.Error) { return v.status(), nil }},
		{name: "progress", fresh: true, get: func(v *view, _ *query) (any, *api.Error) { return v.current(), nil }},
		{name: "workers", params: rows("q", "state", "sort"), get: func(v *view, q *query) (any, *api.Error) { return v.workerList(q) }},
		{name: "worker", params: rows("name"), get: func(v *view, q *query) (any, *api.Error) { return v.worker(q) }},
		{name: "tasks", params: rows("q", "waiting"), get: func(v *view, q *query) (any, *api.Error) { return v.taskList(q) }},
		{name: "task", params: rows("name"), get: func(v *view, q *query) (any, *api.Error) { return v.task(q) }},
		{name: "terms", params: rows(), get: func(v *view, q *query) (any, *api.Error) { return v.termList(q) }},
		{
			name: "term", params: []string{"number", "epoch", "limit"},
			get: func(v *view, q *query) (any, *api.Error) { return v.term(q) },
		},
		{
			name: "changes", params: rows("task", "worker", "reason", "outcome", "since", "newer"),
			get: func(v *view, q *query) (any, *api.Error) { return v.changeList(q) },
		},
		{name: "settings", fresh: true, get: func(v *view, q *query) (any, *api.Error) { return v.settings(q.access), nil }},
		{
			name: "what-if", params: []string{"drain", "undrain", "silence", "lose", "add", "limit"}, fresh: true,
			get: func(v *view, q *query) (any, *api.Error) { return v.whatIf(q) },
		},
	}
}

// apiRoutes adds the routes of the API.
func (h *Handler) apiRoutes() {
	for _, rt := range h.routes() {
		h.handle(http.MethodGet, apiPrefix+rt.name, func(w http.ResponseWriter, r *http.Request) { h.serveAPI(w, r, &rt) })
	}
	h.handle(http.MethodGet, apiPrefix+"openapi.json", func(w http.ResponseWriter, r *http.Request) {
		h.write(w, r, answer{status: http.StatusOK, contentType: "application/json", body: openAPI})
	})
	h.handle(http.MethodPost, apiPrefix+"drain", func(w http.ResponseWriter, r *http.Request) { h.serveDrain(w, r, true) })
	h.handle(http.MethodDelete, apiPrefix+"drain", func(w http.ResponseWriter, r *http.Request) { h.serveDrain(w, r, false) })
}

// serveAPI serves a route that reads.
func (h *Handler) serveAPI(w http.ResponseWriter, r *http.Request, rt *route) {
	v, err := h.view()
	if err != nil {
		h.fail(w, r, err)
		return
	}
	q, tag := newQuery(r, rt.params), ""
	if !rt.fresh {
		tag = v.tag()
	}
	asText := wanted(r)
	if tag != "" && asText != nil {
		tag = tagOf(tag, asText)
	}
	if q.err == nil && tag != "" && matches(r.Header.Get("If-None-Match"), tag) {
		h.write(w, r, answer{tag: tag}) // without the work
		return
	}
	if asText != nil {
		q.bytes = textBytes
	}
	value, err := rt.get(v, q)
	if err = cmp.Or(q.err, err); err != nil {
		h.fail(w, r, err)
		return
	}
	if asText != nil {
		h.writeText(w, r, rt.name, tag, api.Text{Header: v.header()}, value)
		return
	}
	h.writeJSON(w, r, http.StatusOK, tag, value)
}

// serveDrain serves the route that writes.
func (h *Handler) serveDrain(w http.ResponseWriter, r *http.Request, draining bool) {
	out, err := h.setDraining(r, newQuery(r, []string{"worker"}), draining)
	if err != nil {
		h.fail(w, r, err)
		return
	}
	h.writeJSON(w, r, http.StatusOK, "", out)
}
