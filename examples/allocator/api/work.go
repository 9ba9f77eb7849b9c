package api

import (
	"cmp"
	"context"
	"crypto/rand"
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
	batch     = 4 // items read by one call, so a page may exceed pageBytes by 4 MiB
)

const maxInstances = 1000

// listWork writes a page while it reads it, so it holds only one batch at a time. If
// the store fails after the first batch, the page ends there.
func (a *api) listWork(w http.ResponseWriter, r *http.Request) {
	after := r.URL.Query().Get("after")
	items, free, err := a.some(r, after)
	if err != nil {
		a.failed(w, r, err)
		return
	}
	out := begin(w, http.StatusOK, "application/json")
	out.text(`{"work":[`)
	last := false
	for shown, size := 0, 0; ; {
		for _, item := range items {
			if shown > 0 {
				out.text(",")
			}
			a.show(out, item)
			after = item.ID
			shown, size = shown+1, size+len(item.Content)
		}
		last = len(items) < batch
		err := out.Flush()
		free()
		if err != nil || last || shown >= pageItems || size >= pageBytes {
			break
		}
		if items, free, err = a.some(r, after); err != nil {
			if r.Context().Err() == nil {
				a.Logger.Warn("page ended early", "after", after, "err", err)
			}
			break
		}
	}
	out.text("]")
	if !last {
		out.text(`,"next":`)
		out.json(after)
	}
	out.text("}\n")
	a.end(r, out)
}

// some reads a batch. It holds room for the batch until free is called.
func (a *api) some(r *http.Request, after string) (items []Item, free func(), err error) {
	keep, err := a.within(r, batch*contentRoom, func(ctx context.Context) (err error) {
		items, err = a.Tasks.List(ctx, after, batch)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	size := 0
	for _, item := range items {
		size += len(item.Content)
	}
	keep(int64(size))
	return items, func() { keep(0) }, nil
}

func (a *api) getWork(w http.ResponseWriter, r *http.Request) {
	var item Item
	keep, err := a.within(r, contentRoom, func(ctx context.Context) (err error) {
		item, err = a.Tasks.Get(ctx, r.PathValue("id"))
		return err
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	keep(int64(len(item.Content)))
	w.Header().Set("ETag", etag(item.Version))
	out := begin(w, http.StatusOK, "application/json")
	a.show(out, item)
	out.text("\n")
	a.end(r, out)
}

func (a *api) postWork(w http.ResponseWriter, r *http.Request) {
	set, ok := a.settings(w, r)
	if !ok {
		return
	}
	content, free, ok := a.receive(w, r)
	if !ok {
		return
	}
	defer free()
	item := Item{ID: strings.ToLower(rand.Text()), Content: content, Instances: cmp.Or(set.Instances, 1)}
	if set.Rules != nil {
		set.Rules(&item.Rules)
	}
	keep, err := a.within(r, storeRoom, func(ctx context.Context) (err error) {
		item, err = a.Tasks.Create(ctx, item)
		return err
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	keep(0)
	a.stored(w, r, item, true)
}

func (a *api) putWork(w http.ResponseWriter, r *http.Request) {
	id := r.PathValue("id")
	if len(id) > MaxID || !utf8.ValidString(id) {
		a.problem(w, r, http.StatusBadRequest, fmt.Sprintf("an id must be UTF-8 of at most %d bytes", MaxID))
		return
	}
	if id == "." || id == ".." {
		a.problem(w, r, http.StatusBadRequest, "an id must not be . or .., which clients remove from URL paths")
		return
	}
	change, ok := a.settings(w, r)
	if !ok {
		return
	}
	content, free, ok := a.receive(w, r)
	if !ok {
		return
	}
	defer free()
	change.Content, change.If = content, condition(r.Header)
	if content == nil && change.Instances == 0 && change.Rules == nil {
		a.problem(w, r, http.StatusBadRequest, "nothing to change: content or a setting such as ?instances=3 is required")
		return
	}
	var item Item
	var created bool
	keep, err := a.within(r, storeRoom, func(ctx context.Context) (err error) {
		item, created, err = a.Tasks.Put(ctx, id, change)
		return err
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	keep(int64(len(item.Content)))
	a.stored(w, r, item, created)
}

func (a *api) deleteWork(w http.ResponseWriter, r *http.Request) {
	keep, err := a.within(r, contentRoom, func(ctx context.Context) error {
		return a.Tasks.Delete(ctx, r.PathValue("id"), condition(r.Header))
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	keep(0)
	w.WriteHeader(http.StatusNoContent)
}

// stored answers a write.
func (a *api) stored(w http.ResponseWriter, r *http.Request, item Item, created bool) {
	status := http.StatusOK
	if created {
		status = http.StatusCreated
		w.Header().Set("Location", "/work/"+url.PathEscape(item.ID))
	}
	w.Header().Set("ETag", etag(item.Version))
	out := begin(w, status, "application/json")
	out.item(item, struct {
		Instances int `json:"instances"`
		Rules
	}{max(item.Instances, 0), item.Rules})
	out.text("\n")
	a.end(r, out)
}

// settings returns the change of the settings that the client names. If one is invalid,
// settings answers with a problem.
func (a *api) settings(w http.ResponseWriter, r *http.Request) (c Change, ok bool) {
	query := r.URL.Query()
	if text := query.Get("instances"); query.Has("instances") {
		var err error
		c.Instances, err = strconv.Atoi(text)
		if err != nil || c.Instances < 0 || c.Instances > maxInstances {
			a.problem(w, r, http.StatusBadRequest, fmt.Sprintf("instances=%q: must be a number from 0 to %d", text, maxInstances))
			return Change{}, false
		}
		c.Instances = cmp.Or(c.Instances, -1)
	}
	rules, err := rulesOf(query)
	if err != nil {
		a.problem(w, r, http.StatusBadRequest, strings.TrimPrefix(err.Error(), orchestrator.ErrInvalid.Error()+": "))
		return Change{}, false
	}
	c.Rules = rules
	return c, true
}

// rulesOf returns a function that changes the rules that a query names; nil if it names none.
func rulesOf(query url.Values) (func(*Rules), error) {
	var given Rules
	var err error
	if labels := query.Get("requires"); labels != "" {
		given.Requires = strings.Split(labels, ",")
	}
	if text := query.Get("max_per_zone"); text != "" {
		if given.MaxPerZone, err = strconv.Atoi(text); err != nil {
			return nil, fmt.Errorf("max_per_zone=%q: must be a number", text)
		}
	}
	if text := query.Get("weight"); text != "" {
		if given.Weight, err = strconv.ParseInt(text, 10, 64); err != nil {
			return nil, fmt.Errorf("weight=%q: must be a number", text)
		}
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

func (a *api) listWorkers(w http.ResponseWriter, r *http.Request) {
	var workers []Worker
	var leader string
	var epoch uint64
	keep, err := a.within(r, workersRoom, func(ctx context.Context) (err error) {
		if workers, err = a.Cluster.Workers(ctx); err == nil {
			leader, epoch, err = a.Cluster.Leader(ctx)
		}
		return err
	})
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	tasks := 0
	for _, worker := range workers {
		tasks += len(worker.Tasks)
	}
	keep(int64(tasks) * 16) // a string header; the text is held elsewhere

	out := begin(w, http.StatusOK, "application/json")
	out.text(`{"workers":[`)
	for i, worker := range workers {
		if i > 0 {
			out.text(",")
		}
		out.text(`{"name":`)
		out.json(worker.Name)
		out.text(`,"state":`)
		out.json(worker.State)
		out.text(`,"tasks":[`)
		for i, task := range worker.Tasks {
			if i > 0 {
				out.text(",")
			}
			out.json(task)
		}
		out.text("]}")
	}
	out.text(`],"leader":`)
	out.json(leader)
	out.text(`,"epoch":`)
	out.json(epoch)
	out.text("}\n")
	a.end(r, out)
}

// health answers that the process serves, even if etcd does not answer, because
// restarting the process would not bring etcd back.
func (a *api) health(w http.ResponseWriter, _ *http.Request) { ok(w) }

// ready reports whether the store answers, so that a load balancer can avoid this
// process otherwise. Any leader will do.
func (a *api) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
	defer cancel()
	if _, _, err := a.Cluster.Leader(ctx); err != nil {
		a.Logger.Debug("not ready", "err", err) // each request that needs the store logs a warning
		a.unavailable(w, r, "the store does not answer")
		return
	}
	ok(w)
}

func (a *api) metrics(w http.ResponseWriter, r *http.Request) {
	keep, err := a.within(r, metricsRoom, func(context.Context) error { return nil })
	if err != nil {
		a.failed(w, r, err)
		return
	}
	defer keep(0)
	a.Metrics.ServeHTTP(w, r)
}

func ok(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte("ok\n"))
}
