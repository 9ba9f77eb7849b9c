package api

// The handlers of /work.

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A page ends with whichever is reached first.
const (
	pageItems = 100
	pageBytes = 4 << 20
	batch     = 10 // read at once, and so at most 10 MiB more than a page
)

const maxInstances = 1000

func (a *api) listWork(w http.ResponseWriter, r *http.Request) {
	page := struct {
		Work []work `json:"work"`
		Next string `json:"next,omitempty"` // the after of the next page; absent in the last
	}{Work: []work{}}
	after := r.URL.Query().Get("after")
	for size := 0; ; {
		items, err := a.Tasks.List(r.Context(), after, batch)
		if err != nil {
			a.failed(w, r, err)
			return
		}
		for _, item := range items {
			page.Work = append(page.Work, a.shown(item))
			after = item.ID
			size += len(item.Content)
		}
		if len(items) < batch {
			break
		}
		if len(page.Work) >= pageItems || size >= pageBytes {
			page.Next = after
			break
		}
	}
	a.json(w, r, http.StatusOK, page)
}

func (a *api) getWork(w http.ResponseWriter, r *http.Request) {
	item, err := a.Tasks.Get(r.Context(), r.PathValue("id"))
	if err != nil {
		a.failed(w, r, err)
		return
	}
	a.json(w, r, http.StatusOK, a.shown(item))
}

func (a *api) postWork(w http.ResponseWriter, r *http.Request) {
	instances, content, ok := a.read(w, r)
	if !ok {
		return
	}
	item := Item{ID: strings.ToLower(rand.Text()), Content: content, Instances: max(instances, 1)}
	if err := a.Tasks.Create(r.Context(), item); err != nil {
		a.failed(w, r, err)
		return
	}
	a.created(w, r, item)
}

func (a *api) putWork(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if len(id) > MaxID || !utf8.ValidString(id) {
		a.problem(w, r, http.StatusBadRequest, fmt.Sprintf("an id is UTF-8 of at most %d bytes", MaxID))
		return
	}
	if id == "." || id == ".." {
		a.problem(w, r, http.StatusBadRequest, "an id is neither . nor .., which clients take out of an address")
		return
	}
	instances, content, ok := a.read(w, r)
	if !ok {
		return
	}
	item, created, err := a.Tasks.Put(r.Context(), Item{ID: id, Content: content, Instances: instances})
	switch {
	case err != nil:
		a.failed(w, r, err)
	case created:
		a.created(w, r, item)
	default:
		a.json(w, r, http.StatusOK, written(item))
	}
}

func (a *api) deleteWork(w http.ResponseWriter, r *http.Request) {
	if err := a.Tasks.Delete(r.Context(), r.PathValue("id")); err != nil {
		a.failed(w, r, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) created(w http.ResponseWriter, r *http.Request, item Item) {
	w.Header().Set("Location", "/work/"+url.PathEscape(item.ID))
	a.json(w, r, http.StatusCreated, written(item))
}

// read returns what a client wants to be done, or answers what is wrong with
// it. Instances is 0 where it does not say.
func (a *api) read(w http.ResponseWriter, r *http.Request) (instances int, content []byte, ok bool) {
	if r.URL.Query().Has("instances") {
		text := r.URL.Query().Get("instances")
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > maxInstances {
			a.problem(w, r, http.StatusBadRequest, fmt.Sprintf("instances=%q: a number from 1 to %d", text, maxInstances))
			return 0, nil, false
		}
		instances = n
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		a.problem(w, r, http.StatusUnsupportedMediaType, "content is taken as it is: send it without Content-Encoding")
		return 0, nil, false
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxContent))
	var tooLarge *http.MaxBytesError
	switch {
	case err == nil:
		return instances, content, true
	case errors.As(err, &tooLarge):
		a.problem(w, r, http.StatusRequestEntityTooLarge, fmt.Sprintf("content has at most %d bytes", MaxContent))
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close")
		a.problem(w, r, http.StatusRequestTimeout, "the content took too long to arrive")
	default:
		a.problem(w, r, http.StatusBadRequest, "the content ended early")
	}
	return 0, nil, false
}
