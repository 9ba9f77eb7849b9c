package dashboard

import (
	"context"
	"errors"
	"html/template"
	"log/slog"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
	"github.com/f8949c05/orchestrator/history"
)

// Source is the orchestrator of the process that leads. [orchestrator.Orchestrator] and the
// managers that contain one implement it, and so does a replica, whether it leads or not. While a
// Source with a method Ready() error, as a replica has, returns an error, the handler shows that
// in place of a term.
type Source[W, T comparable] interface {
	Last() *orchestrator.Snapshot[W, T]
	OnTerm(f func(*orchestrator.Snapshot[W, T])) (stop func())
	Plan(h orchestrator.Hypothesis[W, T]) (orchestrator.Plan[W, T], error)
	Progress() orchestrator.Progress[W]
	Config() orchestrator.Config
}

// Handler serves the pages and the API. Its links are relative, so that it works beneath any
// path with [http.StripPrefix]. Its methods are safe for concurrent use.
type Handler[W, T comparable] struct {
	options
	drain      func(context.Context, W) error // nil: read-only
	undrain    func(context.Context, W) error
	taskStates func(W) []TaskState[T] // nil: not known

	crossOrigin *http.CrossOriginProtection
	endpoints   map[string]endpoint
	templates   map[string]*template.Template // of the pages
	gzips       sync.Pool
	planning    chan struct{} // holds a token while a what-if plan is computed

	leading  sync.Mutex  // guards recorded
	recorded *lead[W, T] // whose terms the history gets; nil: none

	lead atomic.Pointer[lead[W, T]]     // nil: this process does not lead
	last atomic.Pointer[termView[W, T]] // that of the last request
}

// lead is a time in which this process leads.
type lead[W, T comparable] struct {
	Source[W, T]

	stopRecord func() // set by Lead, and called with leading held
}

// endpoint is what a path serves, by method. HEAD is served as GET.
type endpoint map[string]http.HandlerFunc

// New returns a handler for names of types W and T. It answers that this process does not
// lead until Lead is called. The error joins all problems with the options.
func New[W, T comparable](opts ...Option) (*Handler[W, T], error) {
	h := &Handler[W, T]{crossOrigin: http.NewCrossOriginProtection(), endpoints: make(map[string]endpoint), planning: make(chan struct{}, 1)}
	var errs [4]error
	h.options, errs[0] = newOptions(opts)
	h.drain, errs[1] = typed[func(context.Context, W) error]("WithDrain", h.options.drain)
	h.undrain, errs[2] = typed[func(context.Context, W) error]("WithDrain", h.options.undrain)
	h.taskStates, errs[3] = typed[func(W) []TaskState[T]]("WithTaskStates", h.options.taskStates)
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	h.apiRoutes()
	if err := h.pageRoutes(); err != nil {
		return nil, err
	}
	return h, nil
}

// handle adds an endpoint. The path begins with a slash.
func (h *Handler[W, T]) handle(method, path string, f http.HandlerFunc) {
	if h.endpoints[path] == nil {
		h.endpoints[path] = make(endpoint)
	}
	h.endpoints[path][method] = f
}

// Lead makes the handler show the terms of source, because this process leads, and records
// them in the history. A later call replaces the source, also in the history. After stop, the
// handler answers that this process does not lead, unless Lead was called again. So it does
// after a term that was deposed. A second call of stop does nothing.
func (h *Handler[W, T]) Lead(source Source[W, T]) (stop func()) {
	h.leading.Lock()
	defer h.leading.Unlock()
	if h.recorded != nil {
		h.recorded.stopRecord()
	}
	l := &lead[W, T]{Source: source}
	h.recorded = l
	h.lead.Store(l) // before the history has its terms
	l.stopRecord = history.Record(h.history, source)
	return func() {
		h.leading.Lock()
		defer h.leading.Unlock()
		l.stopRecord()
		if h.recorded == l {
			h.recorded = nil
		}
		h.lead.CompareAndSwap(l, nil)
		h.last.Store(nil) // it refers to a snapshot
	}
}

// view returns the view of the last term. All figures of an answer come from one view. The
// error says that this process does not lead.
func (h *Handler[W, T]) view() (*view[W, T], *api.Error) {
	for {
		l := h.lead.Load()
		if l == nil {
			return nil, h.notLeading("This process does not lead.")
		}
		if r, ok := l.Source.(interface{ Ready() error }); ok {
			if unready := r.Ready(); unready != nil {
				err := h.notLeading(errText(unready))
				err.Title = "This process knows nothing of the workers"
				return nil, err
			}
		}
		past := h.history.View() // before the snapshot, so that it has no later term
		snapshot := l.Last()
		if snapshot != nil && errors.Is(snapshot.Plan().Stats.Err, orchestrator.ErrDeposed) {
			return nil, h.notLeading("This process was deposed: another leader has taken over.")
		}
		v := h.last.Load()
		if v == nil || v.lead != l || v.snapshot != snapshot {
			v = newView(h, l, snapshot)
			h.last.Store(v) // an older one may replace a newer one: it costs time only
		}
		if h.lead.Load() == l {
			return &view[W, T]{termView: v, past: past}, nil
		}
		h.last.CompareAndSwap(v, nil) // past may have terms of the next leadership
	}
}

// notLeading returns the error of a process that does not lead.
func (h *Handler[W, T]) notLeading(detail string) *api.Error {
	err := problem(http.StatusServiceUnavailable, detail)
	err.Type, err.Title = api.TypeNotLeading, "This process does not lead"
	if h.leader != nil {
		err.Leader = printable(h.leader())
	}
	return err
}

// The headers of every answer. Nothing but the files of this package is loaded.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// ServeHTTP serves the pages at / and the API at /api/v1/.
func (h *Handler[W, T]) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "private, no-cache")
	header.Add("Vary", "Authorization, Accept-Encoding")
	access := h.access(r)
	if err := h.admit(w, r, access); err != nil {
		h.fail(w, r, err)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), accessKey{}, access))
	if r.URL.Path == "" { // of StripPrefix, without a slash at the end
		original, _, _ := strings.Cut(r.RequestURI, "?")
		header.Set("Location", "./"+path.Base(original)+"/") // relative, because the prefix is not known
		w.WriteHeader(http.StatusPermanentRedirect)
		return
	}
	methods, ok := h.endpoints[r.URL.Path]
	if !ok {
		h.fail(w, r, problem(http.StatusNotFound, "There is no page at this address."))
		return
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	serve, ok := methods[method]
	if !ok {
		header.Set("Allow", strings.Join(slices.Sorted(maps.Keys(methods)), ", "))
		h.fail(w, r, problem(http.StatusMethodNotAllowed, "The method is not allowed at this address."))
		return
	}
	serve(w, r)
}

// problem returns an error for a status of HTTP.
func problem(status int, detail string) *api.Error {
	return &api.Error{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail}
}

// noTerm returns the error before the first term.
func noTerm() *api.Error {
	err := problem(http.StatusServiceUnavailable, "No term has ended yet, so nothing is known of the workers.")
	err.Type, err.Title = api.TypeNoTerm, "No term has ended yet"
	return err
}

// fail answers with an error: the API with JSON, the pages with a page.
func (h *Handler[W, T]) fail(w http.ResponseWriter, r *http.Request, err *api.Error) {
	if strings.HasPrefix(r.URL.Path, apiPrefix) {
		h.writeJSON(w, r, err.Status, "", err)
		return
	}
	h.errorPage(w, r, err)
}

func (h *Handler[W, T]) log(r *http.Request, level slog.Level, text string, args ...any) {
	h.logger.Log(r.Context(), level, text, args...)
}
