package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// fake answers as an API server does, for Leases of one namespace: with versions, preconditions, label
// selectors and watches.
type fake struct {
	*httptest.Server

	mu      sync.Mutex
	version int
	leases  map[string]map[string]any // by name
	events  []event
	changed chan struct{}                          // closed with the next event
	cut     chan struct{}                          // closed to end all watches
	fault   func(verb string, r *http.Request) int // a status with which a request fails; 0: none
	counts  map[string]int                         // of requests, by verb
}

type event struct {
	version int
	kind    string
	lease   map[string]any
	before  map[string]any // nil: it was created
}

func newFake(t testing.TB) *fake {
	f := &fake{leases: make(map[string]map[string]any), changed: make(chan struct{}), cut: make(chan struct{}), counts: make(map[string]int), version: 100}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() {
		f.cutWatches()
		f.Close()
	})
	return f
}

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/test/leases"

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, leasesPath), "/")
	verb := map[string]string{"POST": "create", "PUT": "update", "DELETE": "delete"}[r.Method]
	switch {
	case verb == "" && r.URL.Query().Get("watch") != "":
		verb = "watch"
	case verb == "" && name == "":
		verb = "list"
	case verb == "":
		verb = "get"
	}
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[verb]++
	if fault := f.fault; fault != nil {
		f.mu.Unlock()
		code := fault(verb, r)
		f.mu.Lock()
		if code != 0 {
			f.fail(w, code, "fault", name)
			return
		}
	}
	there := f.leases[name]
	switch {
	case !strings.HasPrefix(r.URL.Path, leasesPath):
		f.fail(w, 404, "namespaces", "other")
	case verb == "watch":
		f.watch(w, r)
	case verb == "list":
		items := []any{}
		for _, name := range slices.Sorted(maps.Keys(f.leases)) {
			if selects(r, f.leases[name]) {
				items = append(items, f.leases[name])
			}
		}
		answer(w, 200, map[string]any{"metadata": map[string]any{"resourceVersion": strconv.Itoa(f.version)}, "items": items})
	case verb == "create":
		name, _ = meta(body)["name"].(string)
		if f.leases[name] != nil {
			f.fail(w, 409, "leases", name)
			return
		}
		meta(body)["uid"] = fmt.Sprintf("uid-%d", f.version)
		answer(w, 201, f.store(name, body))
	case there == nil:
		f.fail(w, 404, "leases", name)
	case verb == "get":
		answer(w, 200, there)
	default:
		conditions := meta(body)
		if verb == "delete" {
			conditions, _ = body["preconditions"].(map[string]any)
		}
		for _, key := range []string{"uid", "resourceVersion"} {
			if want, ok := conditions[key]; ok && want != meta(there)[key] {
				f.fail(w, 409, "leases", name)
				return
			}
		}
		if verb == "delete" {
			f.remove(name)
			answer(w, 200, map[string]any{"kind": "Status"})
			return
		}
		meta(body)["uid"] = meta(there)["uid"]
		answer(w, 200, f.store(name, body))
	}
}

// store stores a Lease. The caller holds mu.
func (f *fake) store(name string, l map[string]any) map[string]any {
	f.version++
	meta(l)["resourceVersion"] = strconv.Itoa(f.version)
	delete(meta(l), "managedFields")
	before := f.leases[name]
	f.leases[name] = l
	f.tell(event{f.version, "MODIFIED", l, before})
	return l
}

// remove deletes a Lease. The caller holds mu.
func (f *fake) remove(name string) {
	l := f.leases[name]
	delete(f.leases, name)
	f.version++
	last := map[string]any{"metadata": maps.Clone(meta(l))}
	meta(last)["resourceVersion"] = strconv.Itoa(f.version)
	f.tell(event{f.version, "DELETED", last, l})
}

func (f *fake) tell(e event) {
	f.events = append(f.events, e)
	close(f.changed)
	f.changed = make(chan struct{})
}

// watch streams events. The caller holds mu, but not while it waits.
func (f *fake) watch(w http.ResponseWriter, r *http.Request) {
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	flush := http.NewResponseController(w)
	_ = flush.Flush()
	send := func(kind string, object map[string]any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": object})
		_ = flush.Flush()
	}
	for i := 0; ; {
		for ; i < len(f.events); i++ {
			e := f.events[i]
			is, was := selects(r, e.lease), e.before != nil && selects(r, e.before)
			switch {
			case e.version <= from || !is && !was:
			case !is || e.kind == "DELETED":
				send("DELETED", e.lease)
			case !was:
				send("ADDED", e.lease)
			default:
				send(e.kind, e.lease)
			}
		}
		changed, cut := f.changed, f.cut
		f.mu.Unlock()
		select {
		case <-changed:
		case <-cut:
		case <-r.Context().Done():
		}
		f.mu.Lock()
		select {
		case <-cut:
			return
		default:
		}
		if r.Context().Err() != nil {
			return
		}
	}
}

// cutWatches ends all watches.
func (f *fake) cutWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.cut)
	f.cut = make(chan struct{})
}

// setFault makes requests fail.
func (f *fake) setFault(fault func(verb string, r *http.Request) int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// drop deletes the Leases whose names match, by hand.
func (f *fake) drop(match func(name string) bool) (dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.leases)) {
		if match(name) {
			f.remove(name)
			dropped++
		}
	}
	return dropped
}

// edit changes the Leases whose names match, by hand.
func (f *fake) edit(match func(name string) bool, change func(l map[string]any)) (edited int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.leases)) {
		if match(name) {
			text, _ := json.Marshal(f.leases[name])
			var l map[string]any
			_ = json.Unmarshal(text, &l)
			change(l)
			f.store(name, l)
			edited++
		}
	}
	return edited
}

func meta(l map[string]any) map[string]any {
	m, _ := l["metadata"].(map[string]any)
	return m
}

func annotations(l map[string]any) map[string]any {
	m, _ := meta(l)["annotations"].(map[string]any)
	return m
}

// selects reports whether the label selector of a request selects a Lease.
func selects(r *http.Request, l map[string]any) bool {
	labels, _ := meta(l)["labels"].(map[string]any)
	selector := r.URL.Query().Get("labelSelector")
	for selector != "" {
		end := strings.IndexByte(selector, ',')
		if open := strings.IndexByte(selector, '('); open >= 0 && open < end {
			end = strings.IndexByte(selector, ')') + 1
		}
		if end < 0 {
			end = len(selector)
		}
		term := selector[:end]
		selector = strings.TrimPrefix(selector[end:], ",")
		if key, set, ok := strings.Cut(term, " in ("); ok {
			if value, _ := labels[key].(string); !slices.Contains(strings.Split(strings.TrimSuffix(set, ")"), ","), value) {
				return false
			}
		} else if key, value, ok := strings.Cut(term, "!="); ok {
			if labels[key] == value {
				return false
			}
		} else if key, value, _ := strings.Cut(term, "="); labels[key] != value {
			return false
		}
	}
	return true
}

func (f *fake) fail(w http.ResponseWriter, code int, kind, name string) {
	answer(w, code, map[string]any{
		"kind": "Status", "code": code, "reason": http.StatusText(code), "message": fmt.Sprintf("%s %q: %d", kind, name, code),
		"details": map[string]any{"kind": kind, "name": name},
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

// saved is a copy of the store.
type saved struct {
	version int
	leases  map[string]map[string]any
	events  int
}

func (f *fake) save() saved {
	f.mu.Lock()
	defer f.mu.Unlock()
	return saved{f.version, maps.Clone(f.leases), len(f.events)}
}

// restore sets the store back, as a snapshot of etcd does. All watches end.
func (f *fake) restore(s saved) {
	f.cutWatches()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version, f.leases, f.events = s.version, maps.Clone(s.leases), f.events[:s.events]
}

// print prints what kubectl get leases shows: names and holders.
func (f *fake) print() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(f.leases)) {
		spec, _ := f.leases[name]["spec"].(map[string]any)
		if parts := strings.SplitN(name, "-", 3); len(parts) > 1 && len(parts[1]) == 16 {
			parts[1] = "ID"
			name = strings.Join(parts, "-")
		}
		fmt.Printf("%s: %v\n", name, spec["holderIdentity"])
	}
}
