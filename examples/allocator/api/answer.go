package api

// Answers: JSON, and problem details (RFC 9457) for errors.

import (
	"bufio"
	"bytes"
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
	out := begin(w, status, "application/problem+json")
	out.json(problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: detail})
	out.text("\n")
	a.end(r, out)
}

// failed answers with the problem for an error of Tasks, of Cluster or of the
// limits.
func (a *api) failed(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrNotFound):
		a.problem(w, r, http.StatusNotFound, "there is no work of this id")
	case errors.Is(err, ErrChanged):
		a.problem(w, r, http.StatusPreconditionFailed, "the item does not match If-Match or If-None-Match")
	case errors.Is(err, ErrTooLarge):
		a.problem(w, r, http.StatusRequestEntityTooLarge, "the store accepts no content of this size")
	case errors.Is(r.Context().Err(), context.Canceled):
		a.Logger.Debug("client gone", "path", r.URL.Path, "err", err)
	case errors.Is(err, errBusy):
		a.Logger.Warn("request refused, no memory left", "method", r.Method, "path", r.URL.Path)
		a.unavailable(w, r, "other requests hold all the memory; nothing was changed")
	default:
		a.Logger.Warn("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		detail := "the store failed, and the log of this process has the reason"
		if errors.Is(err, context.DeadlineExceeded) {
			detail = "the store does not answer"
		}
		a.unavailable(w, r, detail+"; a change may or may not have been made")
	}
}

func (a *api) unavailable(w http.ResponseWriter, r *http.Request, detail string) {
	w.Header().Set("Retry-After", "1")
	a.problem(w, r, http.StatusServiceUnavailable, detail)
}

// answer writes JSON as it is generated, so that it is never in memory as a whole.
// Errors surface at the flush.
type answer struct{ *bufio.Writer }

// begin sends the header of an answer.
func begin(w http.ResponseWriter, status int, contentType string) answer {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	return answer{bufio.NewWriter(w)}
}

func (a *api) end(r *http.Request, out answer) {
	if err := out.Flush(); err != nil {
		a.Logger.Debug("answer not sent", "path", r.URL.Path, "err", err)
	}
}

func (o answer) text(s string) { _, _ = o.WriteString(s) }

func (o answer) json(v any) { _, _ = o.Write(encode(v)) }

// item writes an item, followed by the fields of rest, which must have at least one.
func (o answer) item(item Item, rest any) {
	o.text(`{"id":`)
	o.json(item.ID)
	o.text(`,"content":"`)
	if utf8.Valid(item.Content) {
		o.escape(item.Content)
		o.text(`",`)
	} else {
		e := base64.NewEncoder(base64.StdEncoding, o)
		_, _ = e.Write(item.Content)
		_ = e.Close()
		o.text(`","encoding":"base64",`)
	}
	_, _ = o.Write(encode(rest)[1:])
}

// escape writes the inside of a JSON string in pieces, because it may be six times
// as long as the text.
func (o answer) escape(text []byte) {
	const most = 4 << 10
	for len(text) > 0 {
		n := min(len(text), most)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		escaped := encode(string(text[:n]))
		_, _ = o.Write(escaped[1 : len(escaped)-1])
		text = text[n:]
	}
}

// encode returns v in JSON, without the escapes that HTML would need.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // strings, numbers and lists of them never fail
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// show writes an item with its workers and, if they are too few, the reasons.
func (a *api) show(out answer, item Item) {
	rest := struct {
		Instances int `json:"instances"`
		Rules
		Workers []string  `json:"workers"`
		Waiting []Waiting `json:"waiting,omitempty"`
	}{Instances: max(item.Instances, 0), Rules: item.Rules, Workers: a.Cluster.Owners(item.ID)}
	if missing := item.Instances - len(rest.Workers); missing > 0 {
		rest.Waiting = a.Cluster.Waiting(item.ID, missing)
	}
	if rest.Workers == nil {
		rest.Workers = []string{}
	}
	out.item(item, rest)
}
