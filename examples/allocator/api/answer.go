package api

// Answers: JSON, and problem details (RFC 9457) for errors.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/f8949c05/orchestrator/replica/etcd"
)

// exchange is a request and its answer. It disconnects a client that stalls.
type exchange struct {
	http.ResponseWriter
	api   *api
	r     *http.Request
	holds []*hold // that the request has

	begun bool        // it waits for its client to read
	end   time.Time   // of the whole answer, once it has begun
	late  atomic.Bool // it gives way
}

// piece is the number of bytes that share a deadline.
const piece = 16 << 10

// Write writes p in pieces, each with its own deadline.
func (x *exchange) Write(p []byte) (written int, err error) {
	if !x.begun {
		x.begun, x.end = true, time.Now().Add(answerTime)
		for _, h := range x.holds {
			h.waits(x.giveWay)
		}
	}
	control := http.NewResponseController(x.ResponseWriter)
	for {
		_ = control.SetWriteDeadline(time.Now().Add(min(stallTime, time.Until(x.end)))) // a test recorder has no deadline
		if x.late.Load() {
			return written, errSlow
		}
		n, err := x.ResponseWriter.Write(p[:min(len(p), piece)])
		written, p = written+n, p[n:]
		if err != nil || len(p) == 0 {
			return written, err
		}
	}
}

// Unwrap supports http.ResponseController.
func (x *exchange) Unwrap() http.ResponseWriter { return x.ResponseWriter }

// giveWay ends the writes of the answer.
func (x *exchange) giveWay() {
	x.late.Store(true)
	_ = http.NewResponseController(x.ResponseWriter).SetWriteDeadline(time.Now())
}

// problem is an error that is answered as it is.
type problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
}

func (p *problem) Error() string { return p.Detail }

func refuse(status int, format string, args ...any) error {
	return &problem{"about:blank", http.StatusText(status), status, fmt.Sprintf(format, args...)}
}

// fail answers with the problem for an error of a handler, of Registry, of Cluster or of the limits.
func (x *exchange) fail(err error) {
	p, ok := errors.AsType[*problem](err)
	if !ok {
		log := x.api.Logger.With("method", x.r.Method, "path", x.r.URL.Path, "err", err)
		switch {
		case errors.Is(err, etcd.ErrNotFound):
			err = refuse(http.StatusNotFound, "there is no work of this id")
		case errors.Is(err, rpctypes.ErrRequestTooLarge):
			err = refuse(http.StatusRequestEntityTooLarge, "the store accepts no content of this size")
		case errors.Is(x.r.Context().Err(), context.Canceled):
			log.Debug("client gone")
			return
		case errors.Is(err, errBusy):
			log.Warn("request refused")
			err = refuse(http.StatusServiceUnavailable, "other requests hold all the memory; nothing was changed")
		default:
			log.Warn("request failed")
			detail := "the store failed, and the log of this process has the reason"
			if errors.Is(err, context.DeadlineExceeded) {
				detail = "the store does not answer"
			}
			err = refuse(http.StatusServiceUnavailable, "%s; a change may or may not have been made", detail)
		}
		p, _ = errors.AsType[*problem](err)
	}
	if p.Status == http.StatusServiceUnavailable {
		x.Header().Set("Retry-After", "1")
	}
	out := x.begin(p.Status, "application/problem+json")
	out.json(p)
	_ = out.end()
}

// answer writes JSON as it is generated, so that it is never in memory as a whole.
type answer struct {
	*bufio.Writer
	x *exchange
}

// begin begins an answer.
func (x *exchange) begin(status int, contentType string) answer {
	h := x.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	x.WriteHeader(status)
	return answer{bufio.NewWriter(x), x}
}

// end ends an answer. A client that is gone is no error.
func (o answer) end() error {
	o.text("\n")
	if err := o.Flush(); err != nil {
		o.x.api.Logger.Debug("answer not sent", "path", o.x.r.URL.Path, "err", err)
	}
	return nil
}

func (o answer) text(s string) { _, _ = o.WriteString(s) }

func (o answer) json(v any) { _, _ = o.Write(encode(v)) }

// item writes an item, followed by the fields of rest, which must have at least one.
func (o answer) item(item etcd.Item, rest any) {
	o.text(`{"id":`)
	o.json(item.Name)
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

// written and shown are the fields of an item besides its content.
type written struct {
	Instances  int      `json:"instances"`
	Requires   []string `json:"requires,omitempty"`
	MaxPerZone int      `json:"max_per_zone,omitempty"`
	Weight     int64    `json:"weight,omitempty"`
}

type shown struct {
	written

	Workers []string  `json:"workers"`
	Waiting []Waiting `json:"waiting,omitempty"`
}

// settingsOf returns the settings of an item. It has no instances if it is not wanted, or if its settings
// were edited by hand so that they cannot be read.
func settingsOf(item etcd.Item) written {
	return written{max(cmp.Or(item.Instances, 1), 0), item.Requires, item.MaxPerZone, item.Weight}
}

// show writes an item with its workers and, if they are too few, the reasons.
func (o answer) show(item etcd.Item) {
	c := o.x.api.Cluster
	rest := shown{written: settingsOf(item), Workers: append([]string{}, c.Owners(item.Name)...)}
	if missing := rest.Instances - len(rest.Workers); missing > 0 {
		rest.Waiting = c.Waiting(item.Name, missing)
	}
	o.item(item, rest)
}
