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

// route is a route of the API that reads, and the page that shows the same.
type route struct {
	name   string
	page   string   // its template; empty: it has no page
	rows   int      // of a list on the page, at most
	params []string // that it takes; others are refused
	// fresh: the answer depends on more than the last term, such as the time or the caller.
	fresh bool
	get   func(*view, *query) (any, *api.Error)
}

// of returns get as the function of a route.
func of[A any](get func(*view, *query) (A, *api.Error)) func(*view, *query) (any, *api.Error) {
	return func(v *view, q *query) (any, *api.Error) { return get(v, q) }
}

// routes returns the routes that read.
func (h *Handler) routes() []route {
	rows := func(params ...string) []string { return append(params, "limit", "after") }
	return []route{
		{name: "status", page: "overview", fresh: true, get: of((*view).status)},
		{name: "progress", fresh: true, get: of((*view).current)},
		{name: "workers", page: "workers", rows: 200, params: rows("q", "state", "sort"), get: of((*view).workerList)},
		{name: "worker", page: "worker", rows: 200, params: rows("name"), get: of((*view).worker)},
		{name: "tasks", page: "tasks", rows: 50, params: rows("q", "waiting"), get: of((*view).taskList)},
		{name: "task", page: "task", rows: 200, params: rows("name"), get: of((*view).task)},
		{name: "terms", page: "terms", rows: 50, params: rows(), get: of((*view).termList)},
		{name: "term", page: "term", rows: 200, params: []string{"number", "epoch", "limit"}, get: of((*view).term)},
		{name: "changes", params: rows("task", "worker", "reason", "outcome", "since", "newer"), get: of((*view).changeList)},
		{name: "settings", page: "about", fresh: true, get: of((*view).settings)},
		{name: "what-if", page: "what-if", rows: 60, params: []string{"drain", "undrain", "silence", "lose", "add", "limit"}, fresh: true, get: of((*view).whatIf)},
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
