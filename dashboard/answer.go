package dashboard

// Answers on the wire.

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// compressAbove is the size above which an answer is compressed.
const compressAbove = 1 << 10

// answer is what a request is answered with.
type answer struct {
	status      int
	contentType string
	tag         string // the entity tag; empty: none
	body        []byte
}

// write sends an answer: without a body if the client has it already, and compressed if it
// is long and the client accepts that.
func (h *Handler) write(w http.ResponseWriter, r *http.Request, a answer) {
	header := w.Header()
	if a.tag != "" {
		header.Set("ETag", a.tag)
		if matches(r.Header.Get("If-None-Match"), a.tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
	}
	header.Set("Content-Type", a.contentType)
	if len(a.body) > compressAbove && acceptsGzip(r) {
		a.body = h.compress(a.body)
		header.Set("Content-Encoding", "gzip")
	}
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if r.Method == http.MethodHead {
		return
	}
	if _, err := w.Write(a.body); err != nil {
		h.log(r, slog.LevelDebug, "answer not sent", "err", err)
	}
}

// writeJSON sends a value as JSON.
func (h *Handler) writeJSON(w http.ResponseWriter, r *http.Request, status int, tag string, value any) {
	a := answer{status: status, contentType: "application/json", tag: tag}
	if _, failed := value.(*api.Error); failed {
		a.contentType = "application/problem+json"
	}
	var err error
	if a.body, err = json.Marshal(value); err != nil {
		h.broken(w, r, err)
		return
	}
	a.body = append(a.body, '\n')
	h.write(w, r, a)
}

// broken answers that an answer could not be made.
func (h *Handler) broken(w http.ResponseWriter, r *http.Request, err error) {
	h.log(r, slog.LevelWarn, "answer not made", "path", r.URL.Path, "err", err)
	http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
}

// matches reports whether the value of If-None-Match contains a tag. Tags are compared
// weakly, as RFC 9110 demands.
func matches(header, tag string) bool {
	tag = strings.TrimPrefix(tag, "W/")
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == tag {
			return true
		}
	}
	return false
}

// acceptsGzip reports whether the client accepts gzip. A quality other than 0 counts as
// accepted.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		coding, quality, _ := strings.Cut(part, ";")
		if strings.EqualFold(strings.TrimSpace(coding), "gzip") {
			quality = strings.TrimPrefix(strings.TrimSpace(quality), "q=")
			q, err := strconv.ParseFloat(quality, 64)
			return quality == "" || err == nil && q > 0
		}
	}
	return false
}

func (h *Handler) compress(body []byte) []byte {
	z, ok := h.gzips.Get().(*gzip.Writer)
	if !ok {
		z = gzip.NewWriter(nil)
	}
	defer h.gzips.Put(z)
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(body) // a bytes.Buffer returns no error
	_ = z.Close()
	return b.Bytes()
}
