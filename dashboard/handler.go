package dashboard

import (
	"context"
	"errors"
	"fmt"
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
)

// Handler serves the pages and the API. Its links are relative, so that it works beneath any
// path with [http.StripPrefix]. Its methods are safe for concurrent use.
type Handler struct {
	options
	crossOrigin *http.CrossOriginProtection
	endpoints   map[string]endpoint
	templates   map[string]*template.Template // of the pages
	words       words
	texts       words // the answers as text
	replays     bool  // it shows a log
	gzips       sync.Pool
	planning    chan struct{} // holds a token while a what-if plan is computed

	leading  sync.Mutex // guards recorded
	recorded *lead      // whose terms the history gets; nil: none

	lead atomic.Pointer[lead]     // nil: this process does not lead
	last atomic.Pointer[termView] // that of the last request
}

// lead is a time in which this process leads.
type lead struct {
	leader

	stopRecord func() // set by Lead, and called with leading held

	saying sync.Mutex // guards said
	said   map[causeKey]example
}

// endpoint is what a path serves, by method. HEAD is served as GET.
type endpoint map[string]http.HandlerFunc

// New returns a handler. It answers that this process does not lead until [Lead] is called. The error joins all problems with the options.
func New(opts ...Option) (*Handler, error) {
	h := &Handler{crossOrigin: http.NewCrossOriginProtection(), endpoints: make(map[string]endpoint), planning: make(chan struct{}, 1)}
	var err error
	if h.options, err = newOptions(opts); err != nil {
		return nil, err
	}
	if h.words, err = newWords(); err != nil {
		return nil, fmt.Errorf("parse the sentences: %w", err)
	}
	h.apiRoutes()
	if err = h.pageRoutes(); err != nil {
		return nil, err
	}
	if h.texts, err = h.newTexts(); err != nil {
		return nil, fmt.Errorf("parse the texts: %w", err)
	}
	return h, nil
}

// handle adds an endpoint. The path begins with a slash.
func (h *Handler) handle(method, path string, f http.HandlerFunc) {
	if h.endpoints[path] == nil {
		h.endpoints[path] = make(endpoint)
	}
	h.endpoints[path][method] = f
}

// view returns the view of the last term. All figures of an answer come from one view. The
// error says that this process does not lead.
func (h *Handler) view() (*view, *api.Error) {
	for {
		l := h.lead.Load()
		if l == nil {
			return nil, h.notLeading("This process does not lead.")
		}
		if unready := l.Ready(); unready != nil {
			err := h.notLeading(errText(unready))
			err.Title = "This process knows nothing of the workers"
			return nil, err
		}
		past := h.history.View() // before the snapshot, so that it has no later term
		snapshot := l.Last()
		v := h.last.Load()
		if v == nil || v.lead != l || v.snapshot != snapshot {
			v = newView(h, l, snapshot)
			h.last.Store(v) // an older one may replace a newer one: it costs time only
		}
		if errors.Is(v.stats.Err, orchestrator.ErrDeposed) {
			return nil, h.notLeading("This process was deposed: another leader has taken over.")
		}
		if h.lead.Load() == l {
			return &view{termView: v, past: past}, nil
		}
		h.last.CompareAndSwap(v, nil) // past may have terms of the next leadership
	}
}

// notLeading returns the error of a process that does not lead.
func (h *Handler) notLeading(detail string) *api.Error {
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
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", contentSecurityPolicy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "private, no-cache")
	header.Add("Vary", "Authorization, Accept, Accept-Encoding")
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
func (h *Handler) fail(w http.ResponseWriter, r *http.Request, err *api.Error) {
	if strings.HasPrefix(r.URL.Path, apiPrefix) {
		h.writeJSON(w, r, err.Status, "", err)
		return
	}
	h.errorPage(w, r, err)
}

func (h *Handler) log(r *http.Request, level slog.Level, text string, args ...any) {
	h.logger.Log(r.Context(), level, text, args...)
}
