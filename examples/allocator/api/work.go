package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
)

// A page ends at the first of these limits.
const (
	pageItems = 100
	pageBytes = 4 << 20
)

const maxInstances = 1000

// listWork writes a page while it reads it, so it holds only one item at a time. If the
// store fails after the page has begun, the page ends there.
func (a *api) listWork(x *exchange) error {
	after := x.r.URL.Query().Get("after")
	var page []etcd.Item // without contents
	err := x.within(itemRoom, func(ctx context.Context) (_ int, err error) {
		page, err = a.Registry.List(ctx, after, pageItems)
		return 0, err
	})
	if err != nil {
		return err
	}
	out := x.begin(http.StatusOK, "application/json")
	out.text(`{"work":[`)
	last, size, comma := len(page) < pageItems, 0, ""
	for i := range page {
		item, err := a.get(x, page[i].Name)
		if errors.Is(err, etcd.ErrNotFound) { // it was deleted meanwhile
			continue
		}
		if err == nil {
			out.text(comma)
			out.show(item)
			after, size, comma = item.Name, size+len(item.Content), ","
			err = out.Flush()
			x.release()
		}
		if err != nil {
			a.Logger.Debug("page ended early", "after", after, "err", err)
		}
		if err != nil || size >= pageBytes && i < len(page)-1 {
			last = false
			break
		}
	}
	out.text("]")
	if !last {
		out.text(`,"next":`)
		out.json(after)
	}
	out.text("}")
	return out.end()
}

// get reads an item, of which the request holds the content.
func (a *api) get(x *exchange, id string) (item etcd.Item, err error) {
	err = x.within(itemRoom, func(ctx context.Context) (_ int, err error) {
		item, err = a.Registry.Get(ctx, id)
		return len(item.Content), err
	})
	return item, err
}

func (a *api) getWork(x *exchange) error {
	item, err := a.get(x, x.r.PathValue("id"))
	if err != nil {
		return err
	}
	x.Header().Set("ETag", etag(item))
	out := x.begin(http.StatusOK, "application/json")
	out.show(item)
	return out.end()
}

func (a *api) postWork(x *exchange) error {
	set, err := settings(x.r.URL.Query())
	if err != nil {
		return err
	}
	item := etcd.Item{Task: replica.Task{Name: strings.ToLower(rand.Text())}}
	if item.Content, err = x.receive(); err != nil {
		return err
	}
	set(&item.Task)
	err = x.within(storeRoom, func(ctx context.Context) (_ int, err error) {
		_, err = a.Registry.CompareAndPut(ctx, item)
		return 0, err
	})
	if err != nil {
		return err
	}
	return x.stored(item, true)
}

// putWork writes again if another write comes between its read and its write, so it changes only
// what the client names. It keeps the settings that the API does not expose.
func (a *api) putWork(x *exchange) error {
	id := x.r.PathValue("id")
	if len(id) > MaxID || !utf8.ValidString(id) || id == "." || id == ".." {
		return refuse(http.StatusBadRequest, "an id must be UTF-8 of at most %d bytes, and not . or .., which clients remove from URL paths", MaxID)
	}
	set, err := settings(x.r.URL.Query())
	if err != nil {
		return err
	}
	content, err := x.receive()
	if err != nil {
		return err
	}
	if content == nil && x.r.URL.RawQuery == "" {
		return refuse(http.StatusBadRequest, "nothing to change: content or a setting such as ?instances=3 is required")
	}
	var item etcd.Item
	var missing bool
	err = x.within(storeRoom, func(ctx context.Context) (_ int, err error) {
		for again := true; again; again = errors.Is(err, etcd.ErrChanged) {
			item, err = a.find(ctx, x, id)
			if missing = errors.Is(err, etcd.ErrNotFound); err != nil && (!missing || content == nil) {
				return 0, err
			}
			if item.Instances < -1 { // the settings were edited by hand, and cannot be read
				item.Task = replica.Task{}
			}
			item.Name = id
			if content != nil {
				item.Content = content
			}
			set(&item.Task)
			_, err = a.Registry.CompareAndPut(ctx, item)
		}
		return len(item.Content), err
	})
	if err != nil {
		return err
	}
	return x.stored(item, missing)
}

func (a *api) deleteWork(x *exchange) error {
	var item etcd.Item
	err := x.within(itemRoom, func(ctx context.Context) (_ int, err error) {
		for again := true; again; again = errors.Is(err, etcd.ErrChanged) {
			if item, err = a.find(ctx, x, x.r.PathValue("id")); err == nil {
				_, err = a.Registry.CompareAndDelete(ctx, item)
			}
		}
		return 0, err
	})
	if err == nil {
		x.WriteHeader(http.StatusNoContent)
	}
	return err
}

// find reads the item that a request changes. It is an error if it does not meet If-Match and
// If-None-Match, and one that wraps etcd.ErrNotFound if it does not exist.
func (a *api) find(ctx context.Context, x *exchange, id string) (etcd.Item, error) {
	item, err := a.Registry.Get(ctx, id)
	missing := errors.Is(err, etcd.ErrNotFound)
	if err != nil && !missing {
		return item, err
	}
	match, none, tag := x.r.Header.Values("If-Match"), x.r.Header.Values("If-None-Match"), ""
	if !missing && len(match)+len(none) > 0 {
		tag = etag(item)
	}
	if len(match) > 0 && !lists(match, tag) || lists(none, tag) {
		return item, refuse(http.StatusPreconditionFailed, "the item does not match If-Match or If-None-Match")
	}
	return item, err
}

// lists reports whether an item with the entity tag exists and one of the tags is its own or a star, which
// matches every item.
func lists(values []string, tag string) bool {
	return tag != "" && slices.ContainsFunc(strings.Split(strings.Join(values, ","), ","), func(value string) bool {
		value = strings.TrimSpace(value)
		return value == "*" || value == tag
	})
}

// etag returns a hash of the content and the settings, as an entity tag.
func etag(item etcd.Item) string {
	item.Name, item.Input = "", 0
	settings, _ := json.Marshal(item.Task) // it has only texts and numbers
	h := sha256.New()
	_, _ = h.Write(append(settings, '\n'))
	_, _ = h.Write(item.Content)
	return fmt.Sprintf("%q", hex.EncodeToString(h.Sum(nil)[:16]))
}

// stored answers a write.
func (x *exchange) stored(item etcd.Item, created bool) error {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		x.Header().Set("Location", "/work/"+url.PathEscape(item.Name))
	}
	x.Header().Set("ETag", etag(item))
	out := x.begin(status, "application/json")
	out.item(item, settingsOf(item))
	return out.end()
}

// settings returns a function that changes the settings that a query names.
func settings(query url.Values) (set func(*replica.Task), err error) {
	number := func(name string) (n int64) {
		if text := query.Get(name); text != "" && err == nil {
			if n, err = strconv.ParseInt(text, 10, 64); err != nil {
				err = refuse(http.StatusBadRequest, "%s=%q: must be a number", name, text)
			}
		}
		return n
	}
	given := orchestrator.TaskSettings{
		Instances: int(number("instances")), MaxPerZone: int(number("max_per_zone")), Weight: number("weight"),
	}
	if labels := query.Get("requires"); labels != "" {
		given.Requires = strings.Split(labels, ",")
	}
	switch invalid := given.Check(); {
	case err != nil:
		return nil, err
	case query.Has("instances") && (query.Get("instances") == "" || given.Instances < 0 || given.Instances > maxInstances):
		return nil, refuse(http.StatusBadRequest, "instances=%q: must be a number from 0 to %d", query.Get("instances"), maxInstances)
	case invalid != nil:
		return nil, refuse(http.StatusBadRequest, "%s", strings.TrimPrefix(invalid.Error(), orchestrator.ErrInvalid.Error()+": "))
	}
	return func(t *replica.Task) {
		if query.Has("instances") {
			t.Instances = cmp.Or(given.Instances, -1)
		}
		if query.Has("requires") {
			t.Requires = given.Requires
		}
		if query.Has("max_per_zone") {
			t.MaxPerZone = given.MaxPerZone
		}
		if query.Has("weight") {
			t.Weight = given.Weight
		}
	}, nil
}

func (a *api) listWorkers(x *exchange) error {
	var fleet Fleet
	err := x.within(fleetRoom, func(context.Context) (bytes int, err error) {
		fleet, err = a.Cluster.Fleet()
		for _, w := range fleet.Workers {
			bytes += len(w.Tasks) * 16 // a string header; the text is held elsewhere
		}
		return bytes, err
	})
	if err != nil {
		return err
	}
	out := x.begin(http.StatusOK, "application/json")
	out.text(`{"workers":[`)
	for i, w := range fleet.Workers {
		if i > 0 {
			out.text(",")
		}
		out.json(w)
	}
	out.text(`],"leader":`)
	out.json(fleet.Leader)
	out.text(`,"epoch":`)
	out.json(fleet.Epoch)
	out.text("}")
	return out.end()
}

// health answers that the process serves, even if etcd does not answer, because
// restarting the process would not bring etcd back.
func (a *api) health(x *exchange) error {
	out := x.begin(http.StatusOK, "text/plain; charset=utf-8")
	out.text("ok")
	return out.end()
}

// ready reports whether the store answers, so that a load balancer can avoid this
// process otherwise.
func (a *api) ready(x *exchange) error {
	if err := a.Cluster.Ready(); err != nil {
		a.Logger.Debug("not ready", "err", err) // each request that needs the store logs a warning
		return refuse(http.StatusServiceUnavailable, "the store does not answer")
	}
	return a.health(x)
}

// admin serves what operators need.
func (a *api) admin(x *exchange) error {
	_, err := x.take(a.read, adminRoom)
	if err == nil {
		a.Admin.ServeHTTP(x, x.r)
	}
	return err
}
