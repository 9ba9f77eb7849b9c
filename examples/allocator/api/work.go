package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/f8949c05/orchestrator"
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
	var ids []string
	err := x.within(itemRoom, func(ctx context.Context) (_ int, err error) {
		ids, err = a.Tasks.List(ctx, after, pageItems)
		return 0, err
	})
	if err != nil {
		return err
	}
	out := x.begin(http.StatusOK, "application/json")
	out.text(`{"work":[`)
	last, size, comma := len(ids) < pageItems, 0, ""
	for i, id := range ids {
		item, err := a.find(x, id)
		if errors.Is(err, ErrNotFound) { // it was deleted meanwhile
			continue
		}
		if err == nil {
			out.text(comma)
			out.show(item)
			after, size, comma = id, size+len(item.Content), ","
			err = out.Flush()
			x.release()
		}
		if err != nil {
			a.Logger.Debug("page ended early", "after", after, "err", err)
		}
		if err != nil || size >= pageBytes && i < len(ids)-1 {
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

// find reads an item, of which the request holds the content.
func (a *api) find(x *exchange, id string) (item Item, err error) {
	err = x.within(itemRoom, func(ctx context.Context) (_ int, err error) {
		item, err = a.Tasks.Get(ctx, id)
		return len(item.Content), err
	})
	return item, err
}

func (a *api) getWork(x *exchange) error {
	item, err := a.find(x, x.r.PathValue("id"))
	if err != nil {
		return err
	}
	x.Header().Set("ETag", etag(item.Version))
	out := x.begin(http.StatusOK, "application/json")
	out.show(item)
	return out.end()
}

func (a *api) postWork(x *exchange) error {
	change, err := settings(x.r)
	if err != nil {
		return err
	}
	item := Item{ID: strings.ToLower(rand.Text()), Instances: cmp.Or(change.Instances, 1)}
	if item.Content, err = x.receive(); err != nil {
		return err
	}
	if change.Rules != nil {
		change.Rules(&item.Rules)
	}
	err = x.within(storeRoom, func(ctx context.Context) (_ int, err error) {
		item, err = a.Tasks.Create(ctx, item)
		return 0, err
	})
	if err != nil {
		return err
	}
	return x.stored(item, true)
}

func (a *api) putWork(x *exchange) error {
	id := x.r.PathValue("id")
	if len(id) > MaxID || !utf8.ValidString(id) || id == "." || id == ".." {
		return refuse(http.StatusBadRequest, "an id must be UTF-8 of at most %d bytes, and not . or .., which clients remove from URL paths", MaxID)
	}
	change, err := settings(x.r)
	if err != nil {
		return err
	}
	if change.Content, err = x.receive(); err != nil {
		return err
	}
	change.If = condition(x.r.Header)
	if change.Content == nil && change.Instances == 0 && change.Rules == nil {
		return refuse(http.StatusBadRequest, "nothing to change: content or a setting such as ?instances=3 is required")
	}
	var item Item
	var created bool
	err = x.within(storeRoom, func(ctx context.Context) (_ int, err error) {
		item, created, err = a.Tasks.Put(ctx, id, change)
		return len(item.Content), err
	})
	if err != nil {
		return err
	}
	return x.stored(item, created)
}

func (a *api) deleteWork(x *exchange) error {
	err := x.within(itemRoom, func(ctx context.Context) (int, error) {
		return 0, a.Tasks.Delete(ctx, x.r.PathValue("id"), condition(x.r.Header))
	})
	if err == nil {
		x.WriteHeader(http.StatusNoContent)
	}
	return err
}

// stored answers a write.
func (x *exchange) stored(item Item, created bool) error {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		x.Header().Set("Location", "/work/"+url.PathEscape(item.ID))
	}
	x.Header().Set("ETag", etag(item.Version))
	out := x.begin(status, "application/json")
	out.item(item, written{max(item.Instances, 0), item.Rules})
	return out.end()
}

// settings returns the change of the settings that the client names.
func settings(r *http.Request) (c Change, err error) {
	query := r.URL.Query()
	if text := query.Get("instances"); query.Has("instances") {
		c.Instances, err = strconv.Atoi(text)
		if err != nil || c.Instances < 0 || c.Instances > maxInstances {
			return c, refuse(http.StatusBadRequest, "instances=%q: must be a number from 0 to %d", text, maxInstances)
		}
		c.Instances = cmp.Or(c.Instances, -1)
	}
	if c.Rules, err = rulesOf(query); err != nil {
		return c, refuse(http.StatusBadRequest, "%s", strings.TrimPrefix(err.Error(), orchestrator.ErrInvalid.Error()+": "))
	}
	return c, nil
}

// rulesOf returns a function that changes the rules that a query names; nil if it names none.
func rulesOf(query url.Values) (func(*Rules), error) {
	var given Rules
	var err error
	number := func(name string) (n int64) {
		if text := query.Get(name); text != "" && err == nil {
			if n, err = strconv.ParseInt(text, 10, 64); err != nil {
				err = fmt.Errorf("%s=%q: must be a number", name, text)
			}
		}
		return n
	}
	if labels := query.Get("requires"); labels != "" {
		given.Requires = strings.Split(labels, ",")
	}
	given.MaxPerZone, given.Weight = int(number("max_per_zone")), number("weight")
	if err != nil {
		return nil, err
	}
	s := orchestrator.TaskSettings{Requires: given.Requires, MaxPerZone: given.MaxPerZone, Weight: given.Weight}
	if err := s.Check(); err != nil {
		return nil, err
	}
	if !query.Has("requires") && !query.Has("max_per_zone") && !query.Has("weight") {
		return nil, nil
	}
	return func(r *Rules) {
		if query.Has("requires") {
			r.Requires = given.Requires
		}
		if query.Has("max_per_zone") {
			r.MaxPerZone = given.MaxPerZone
		}
		if query.Has("weight") {
			r.Weight = given.Weight
		}
	}, nil
}

// etag returns the entity tag of a version.
func etag(version string) string { return `"` + version + `"` }

// condition returns the condition of If-Match and If-None-Match, or nil without
// them.
func condition(h http.Header) Condition {
	match, none := h.Values("If-Match"), h.Values("If-None-Match")
	if len(match) == 0 && len(none) == 0 {
		return nil
	}
	return func(version string) bool {
		return (len(match) == 0 || lists(match, version)) && !lists(none, version)
	}
}

// lists reports whether an item of the version exists and one of the entity tags is
// its own or a star, which matches every item.
func lists(values []string, version string) bool {
	for _, value := range values {
		for tag := range strings.SplitSeq(value, ",") {
			tag = strings.TrimSpace(tag)
			if version != "" && (tag == "*" || tag == etag(version)) {
				return true
			}
		}
	}
	return false
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
	h, err := x.take(a.read, adminRoom)
	if err == nil {
		h.waits(x.giveWay)
		a.Admin.ServeHTTP(x, x.r)
	}
	return err
}
