package dashboard

// The pages: their routes, and the values that the templates render.

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"hash/fnv"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// pageBytes bounds the rows of a page, as JSON. A name of the longest kind takes up to five
// times as much in HTML, where it is also part of a link.
const pageBytes = 48 << 10

// web has the templates, the style sheet, the script and the icon.
//
//go:embed web
var web embed.FS

// frame is what a page shows around its content.
type frame struct {
	Dashboard string // the title of the dashboard
	// Path is the path of the page without the first slash. It is empty for the overview.
	Path  string
	Query url.Values
	// Writable reports whether the reader may drain workers.
	Writable bool
	// HistorySince is the start of the first term that the history has. It is zero without a
	// history.
	HistorySince time.Time
	Tag          string     // the entity tag of the page
	Header       api.Header // of the term
	Content      any        // the answer of the API that the page shows
	Err          *api.Error // what-if: why there is no answer
	// Of the overview and the terms: all workers, in the order in which they were added; the last terms, the
	// newest first; and how many terms of the history were quiet.
	Fleet []api.Worker
	Plot  []api.TermRow
	Quiet int
}

// Root returns the relative way to the root of the dashboard. It is empty unless the path has
// a slash, as only those of pages that do not exist have.
func (f *frame) Root() string { return strings.Repeat("../", strings.Count(f.Path, "/")) }

// Live returns what the page says of its own age, while it is answered.
func (f *frame) Live() string {
	if err, failed := f.Content.(*api.Error); f.Header.Observed || failed && err.Type == api.TypeNotLeading {
		return "does not lead"
	}
	return "live"
}

// Section returns the path of the entry of the menu to which the page belongs.
func (f *frame) Section() string {
	switch f.Path {
	case "worker", "task", "term":
		return f.Path + "s"
	}
	return f.Path
}

// HasBars reports whether each worker has a bar, and not only a cell.
func (f *frame) HasBars() bool {
	return len(f.Fleet) <= mostBars && fit(f.Fleet, pageBytes/3) == len(f.Fleet)
}

// newTemplates parses the templates, and returns one for each page.
func newTemplates(w words) (map[string]*template.Template, error) {
	shared, err := template.New("").Funcs(sentenceFuncs(w)).ParseFS(web, "web/layout.html", "web/parts.html")
	if err != nil {
		return nil, err
	}
	templates := make(map[string]*template.Template)
	for name := range strings.FieldsSeq("about error overview task tasks term terms waiting what-if worker workers") {
		one, err := shared.Clone()
		if err != nil {
			return nil, err
		}
		if templates[name], err = one.ParseFS(web, "web/"+name+".html"); err != nil {
			return nil, err
		}
	}
	return templates, nil
}

// pageRoutes adds the routes of the pages and of their files.
func (h *Handler) pageRoutes() error {
	var err error
	if h.templates, err = newTemplates(h.words); err != nil {
		return fmt.Errorf("parse the pages: %w", err)
	}
	for _, rt := range h.routes() {
		if rt.page != "" {
			path := strings.TrimPrefix("/"+rt.page, "/overview")
			h.handle(http.MethodGet, cmp.Or(path, "/"), func(w http.ResponseWriter, r *http.Request) { h.servePage(w, r, &rt) })
		}
	}
	h.handle(http.MethodPost, "/drain", h.serveDrainForm)
	for name, contentType := range map[string]string{
		"style.css": "text/css; charset=utf-8", "live.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	} {
		body, err := web.ReadFile("web/" + name)
		if err != nil {
			return fmt.Errorf("read the files of the pages: %w", err)
		}
		file := answer{status: http.StatusOK, contentType: contentType, tag: tagOf(body), body: body}
		h.handle(http.MethodGet, "/web/"+name, func(w http.ResponseWriter, r *http.Request) { h.write(w, r, file) })
	}
	return nil
}

// tagOf returns an entity tag for some content.
func tagOf(content ...any) string {
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, content...) // a hash returns no error
	return fmt.Sprintf(`W/"%x"`, hash.Sum64())
}

// servePage answers with a page of the last term.
func (h *Handler) servePage(w http.ResponseWriter, r *http.Request, rt *route) {
	v, err := h.view()
	if err != nil {
		h.errorPage(w, r, err)
		return
	}
	f, past := h.newFrame(r), v.past.Counts()
	f.Header, f.HistorySince, f.Quiet = v.header(), past.Since, past.Quiet
	a := answer{status: http.StatusOK, tag: tagOf(v.tag(), f.Writable)}
	if rt.name == "status" || v.snapshot == nil { // these pages show the term under way, and one that is overdue
		a.tag = tagOf(v.tag(), f.Writable, v.progress(), v.overdue(time.Now()) != nil)
	}
	if matches(r.Header.Get("If-None-Match"), a.tag) {
		h.write(w, r, a)
		return
	}
	if v.snapshot == nil && rt.name != "settings" {
		f.Content = v.progress()
		h.writePage(w, r, a, "waiting", f)
		return
	}
	if name := f.Query.Get("q"); rt.name == "tasks" && len(f.Query) == 1 {
		if _, whole := v.findTask(named(name)); whole {
			redirect(w, "task?"+url.Values{"name": {name}}.Encode())
			return
		}
	}
	if rt.name == "status" || rt.name == "terms" {
		f.Fleet, f.Plot = v.workers().rows, v.termRows(orchestrator.Term{}, timelineTerms)
	}
	q := newQuery(r, append(slices.Clip(rt.params), "asked"))
	q.values, q.bytes, q.tagged = maps.Clone(f.Query), pageBytes, true
	q.values.Set("limit", strconv.Itoa(max(rt.rows, 1)))
	if err = q.err; err == nil && (rt.name != "what-if" || len(f.Query) > 0) {
		f.Content, err = rt.get(v, q)
	}
	switch err = cmp.Or(q.err, err); {
	case err == nil:
		if answer, ok := f.Content.(api.WhatIf); ok {
			f.Header = answer.Header // a term may have ended meanwhile
		}
	case rt.name == "what-if": // which shows the error beside the form
		f.Content, f.Err = nil, err
		a.status, a.tag = err.Status, ""
	default:
		f.Content = err
		h.writePage(w, r, answer{status: err.Status}, "error", f)
		return
	}
	h.writePage(w, r, a, rt.page, f)
}

// termRows returns the first terms before one, or the last ones if that is zero, the newest first.
func (v *view) termRows(before orchestrator.Term, most int) []api.TermRow {
	rows := []api.TermRow{}
	for t, quiet := range v.past.Terms(before) {
		if rows = append(rows, termRow(t, quiet)); len(rows) == most {
			break
		}
	}
	return rows
}

// newFrame returns the frame of the page that a request asks for. Empty values are left out
// of the query, because forms send them for what was not filled in.
func (h *Handler) newFrame(r *http.Request) *frame {
	f := &frame{
		Dashboard: h.title, Path: strings.TrimPrefix(r.URL.Path, "/"), Query: r.URL.Query(),
	}
	access, _ := r.Context().Value(accessKey{}).(Access)
	f.Writable = h.drain != nil && access >= WriteAccess
	for name, values := range f.Query {
		f.Query[name] = slices.DeleteFunc(values, func(v string) bool { return v == "" })
	}
	maps.DeleteFunc(f.Query, func(_ string, values []string) bool { return len(values) == 0 })
	return f
}

// writePage renders a page and sends it.
func (h *Handler) writePage(w http.ResponseWriter, r *http.Request, a answer, name string, f *frame) {
	f.Tag = a.tag
	var b bytes.Buffer
	if err := h.templates[name].ExecuteTemplate(&b, "layout", f); err != nil {
		h.broken(w, r, err)
		return
	}
	a.contentType, a.body = "text/html; charset=utf-8", b.Bytes()
	h.write(w, r, a)
}

// serveDrainForm drains the workers of a form, or ends that, and leads the browser to a page
// that shows them.
func (h *Handler) serveDrainForm(w http.ResponseWriter, r *http.Request) {
	const longestForm = 1 << 20
	r.Body = http.MaxBytesReader(w, r.Body, longestForm)
	if err := r.ParseForm(); err != nil {
		h.fail(w, r, problem(http.StatusBadRequest, "The form cannot be read: "+printable(err.Error())+"."))
		return
	}
	workers, draining := r.PostForm["worker"], r.PostForm.Get("undrain") == ""
	for i, name := range workers {
		q := newQuery(r, nil)
		q.values.Set("worker", name)
		if _, err := h.setDraining(r, q, draining); err != nil {
			if i > 0 {
				err.Detail = fmt.Sprintf("Done for %d of %d workers: %s. Then: %s", i, len(workers),
					shorten(printable(strings.Join(workers[:i], ", ")), 200), err.Detail)
			}
			h.fail(w, r, err)
			return
		}
	}
	asked := url.Values{"asked": {"drain"}, "state": {"draining"}}
	if !draining {
		asked = url.Values{"asked": {"undrain"}}
	}
	location := "workers?" + asked.Encode()
	if len(workers) == 1 {
		asked.Del("state")
		asked["name"] = workers
		location = "worker?" + asked.Encode()
	}
	redirect(w, location)
}

// redirect leads the browser to a page. [http.Redirect] would make the address absolute,
// without the prefix that was stripped.
func redirect(w http.ResponseWriter, location string) {
	w.Header().Set("Location", location)
	w.WriteHeader(http.StatusSeeOther)
}

// errorPage answers with a page that says what failed.
func (h *Handler) errorPage(w http.ResponseWriter, r *http.Request, err *api.Error) {
	f, name := h.newFrame(r), "error"
	if f.Content = err; err.Type == api.TypeNoTerm {
		f.Content, name = nil, "waiting"
	}
	h.writePage(w, r, answer{status: err.Status}, name, f)
}
