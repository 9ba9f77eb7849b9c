package api

// Answers: JSON, and problem details (RFC 9457) for what went wrong.

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"unicode/utf8"
)

type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (a *api) problem(w http.ResponseWriter, r *http.Request, status int, detail string) {
	a.write(w, r, status, "application/problem+json",
		problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
}

func (a *api) json(w http.ResponseWriter, r *http.Request, status int, v any) {
	a.write(w, r, status, "application/json", v)
}

func (a *api) write(w http.ResponseWriter, r *http.Request, status int, contentType string, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		a.Logger.Debug("answer not taken", "path", r.URL.Path, "err", err)
	}
}

// failed answers for what is behind the API.
func (a *api) failed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		a.problem(w, r, http.StatusNotFound, "there is no work of this id")
	case errors.Is(err, ErrTooLarge):
		a.problem(w, r, http.StatusRequestEntityTooLarge, "the store takes no content of this size")
	case errors.Is(r.Context().Err(), context.Canceled):
		a.Logger.Debug("client gone", "path", r.URL.Path, "err", err)
	default:
		a.Logger.Warn("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		detail := "the store cannot do this just now, and the log here says why"
		if r.Context().Err() != nil {
			detail = "the store does not answer"
		}
		a.unavailable(w, r, detail+"; if this was to change something, it may have happened or not")
	}
}

func (a *api) unavailable(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("Retry-After", "1")
	a.problem(w, r, http.StatusServiceUnavailable, detail)
}

// work is an item as clients see it.
type work struct {
	ID        string    `json:"id"`
	Content   string    `json:"content"`
	Encoding  string    `json:"encoding,omitempty"` // base64, where content is no UTF-8
	Instances int       `json:"instances"`
	Workers   *[]string `json:"workers,omitempty"` // absent in the answer to a write
}

func written(item Item) work {
	w := work{ID: item.ID, Content: string(item.Content), Instances: item.Instances}
	if !utf8.Valid(item.Content) {
		w.Content, w.Encoding = base64.StdEncoding.EncodeToString(item.Content), "base64"
	}
	return w
}

func (a *api) shown(item Item) work {
	w := written(item)
	owners := a.Cluster.Owners(item.ID)
	if owners == nil {
		owners = []string{}
	}
	w.Workers = &owners
	return w
}
