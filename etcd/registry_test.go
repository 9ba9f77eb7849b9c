package etcd_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
)

func newRegistry(t testing.TB, c *clientv3.Client, opts ...etcd.Option) *etcd.Registry {
	t.Helper()
	r, err := etcd.NewRegistry(c, opts...)
	require.NoError(t, err)
	return r
}

func TestE3_CreatePutGetConfigureDelete(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	ctx := t.Context()

	created, err := r.Create(ctx, etcd.Item{Name: "a/b", Content: []byte("one"), Settings: orchestrator.TaskSettings{Instances: 2}})
	require.NoError(t, err)
	require.Positive(t, created.Revision)
	got, err := r.Get(ctx, "a/b")
	require.NoError(t, err)
	require.Equal(t, created, got)
	_, err = r.Create(ctx, etcd.Item{Name: "a/b", Content: []byte("two")})
	require.ErrorIs(t, err, etcd.ErrExists)
	require.ErrorContains(t, err, `"a/b"`)
	got, err = r.Get(ctx, "a/b")
	require.NoError(t, err)
	require.Equal(t, created, got, "the task must not change")

	stored, isNew, err := r.Put(ctx, etcd.Item{Name: "a/b", Content: []byte("two")})
	require.NoError(t, err)
	require.False(t, isNew)
	require.Greater(t, stored.Revision, created.Revision)
	got, err = r.Get(ctx, "a/b")
	require.NoError(t, err)
	require.Equal(t, stored, got)

	settings := orchestrator.TaskSettings{Instances: 3, Handoff: orchestrator.StartThenStop}
	require.NoError(t, r.Configure(ctx, "a/b", settings))
	got, err = r.Get(ctx, "a/b")
	require.NoError(t, err)
	require.Equal(t, settings, got.Settings)
	require.Equal(t, stored.Revision, got.Revision, "the content did not change")

	_, isNew, err = r.Put(ctx, etcd.Item{Name: "new"})
	require.NoError(t, err)
	require.True(t, isNew)
	require.NoError(t, r.Delete(ctx, "a/b"))
	require.ErrorIs(t, r.Delete(ctx, "a/b"), etcd.ErrNotFound)
	require.ErrorIs(t, r.Configure(ctx, "a/b", settings), etcd.ErrNotFound)
	_, err = r.Get(ctx, "a/b")
	require.ErrorIs(t, err, etcd.ErrNotFound)
	resp, err := c.Get(ctx, "/work/tasks/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Empty(t, resp.Kvs, "the settings must be deleted too")
}

// A writer detects every change since its read.
func TestE3_CompareAndSwap(t *testing.T) {
	r := newRegistry(t, startEtcd(t))
	ctx := t.Context()
	none := etcd.Item{Name: "a"}
	_, err := r.CompareAndSwap(ctx, etcd.Item{Name: "b"}, none)
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	created, err := r.CompareAndSwap(ctx, none, etcd.Item{Name: "a", Content: []byte("one")})
	require.NoError(t, err)
	_, err = r.CompareAndSwap(ctx, none, etcd.Item{Name: "a"})
	require.ErrorIs(t, err, etcd.ErrChanged)
	require.ErrorContains(t, err, `"a"`)

	// Each change of the last stored item succeeds, and can be read.
	last := created
	for name, change := range []func(*etcd.Item){
		func(*etcd.Item) {},
		func(i *etcd.Item) { i.Content = []byte("two") },
		func(i *etcd.Item) { i.Settings.Instances = 3 },
		func(i *etcd.Item) { i.Content, i.Settings.Instances = []byte("three"), 2 },
		func(i *etcd.Item) { i.Settings.Instances = 0 },
		func(i *etcd.Item) { i.Settings.Instances = -1 },
		func(i *etcd.Item) { i.Content = nil },
	} {
		item := last
		change(&item)
		stored, err := r.CompareAndSwap(ctx, last, item)
		require.NoError(t, err, name)
		got, err := r.Get(ctx, "a")
		require.NoError(t, err, name)
		require.Equal(t, string(item.Content), string(got.Content), name)
		require.Equal(t, cmp.Or(item.Settings.Instances, 1), got.Settings.Instances, name)
		require.Equal(t, string(last.Content) == string(item.Content), last.Revision == stored.Revision, "%d: a change of settings must not change the content's revision", name)
		got.Content = stored.Content // nil and empty are the same
		require.Equal(t, stored, got, name)
		listed, err := r.List(ctx, "", 1)
		require.NoError(t, err, name)
		require.Equal(t, stored.SettingsRevision, listed[0].SettingsRevision, name)
		last = stored
	}

	// Every write since the read is detected.
	for name, write := range map[string]func() error{
		"content":          func() error { _, _, err := r.Put(ctx, etcd.Item{Name: "a", Content: []byte("x")}); return err },
		"settings":         func() error { return r.Configure(ctx, "a", orchestrator.TaskSettings{Instances: 5}) },
		"default settings": func() error { return r.Configure(ctx, "a", orchestrator.TaskSettings{}) },
		"deleted":          func() error { return r.Delete(ctx, "a") },
		"deleted and created again": func() error {
			require.NoError(t, r.Delete(ctx, "a"))
			_, err := r.Create(ctx, etcd.Item{Name: "a", Content: []byte("x"), Settings: orchestrator.TaskSettings{Instances: 5}})
			return err
		},
	} {
		before, _, err := r.Put(ctx, etcd.Item{Name: "a", Content: []byte("x"), Settings: orchestrator.TaskSettings{Instances: 5}})
		require.NoError(t, err)
		require.NoError(t, write())
		after, wrong := r.Get(ctx, "a")
		_, err = r.CompareAndSwap(ctx, before, etcd.Item{Name: "a", Content: []byte("mine")})
		require.ErrorIs(t, err, etcd.ErrChanged, name)
		require.ErrorIs(t, r.CompareAndDelete(ctx, before), etcd.ErrChanged, name)
		same, wrongStill := r.Get(ctx, "a")
		require.Equal(t, after, same, name)
		require.Equal(t, wrong == nil, wrongStill == nil, name)
	}
	last, _, err = r.Put(ctx, etcd.Item{Name: "a"})
	require.NoError(t, err)
	require.NoError(t, r.CompareAndDelete(ctx, last))
	require.ErrorIs(t, r.CompareAndDelete(ctx, last), etcd.ErrChanged)
	require.ErrorIs(t, r.CompareAndDelete(ctx, etcd.Item{}), orchestrator.ErrInvalid)
}

func TestE1_ReadableWithEtcdctl(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	_, err := r.Create(t.Context(), etcd.Item{
		Name: "poll eu/west", Content: []byte("https://example.com"),
		Settings: orchestrator.TaskSettings{
			Instances: 2, Handoff: orchestrator.StopThenStart, Requires: []string{"gpu", "!spot"}, MaxPerZone: 1, Weight: 3,
		},
	})
	require.NoError(t, err)
	_, err = r.Create(t.Context(), etcd.Item{Name: "plain"})
	require.NoError(t, err)
	require.NoError(t, r.Drain(t.Context(), "host:80"))

	resp, err := c.Get(t.Context(), "/work/", clientv3.WithPrefix())
	require.NoError(t, err)
	var lines []string
	for _, kv := range resp.Kvs {
		lines = append(lines, fmt.Sprintf("%s %s", kv.Key, kv.Value))
	}
	require.Equal(t, []string{
		"/work/drains/host:80 draining",
		"/work/format orchestrator 1",
		"/work/registry/plain ",
		"/work/registry/poll%20eu%2Fwest https://example.com",
		`/work/tasks/poll%20eu%2Fwest {"instances":2,"handoff":"stop then start","requires":["gpu","!spot"],"max_per_zone":1,"weight":3}`,
	}, lines)
}

// anything returns items with unusual names and contents.
func anything() []etcd.Item {
	random := rand.NewChaCha8([32]byte{1})
	some := func(n int) []byte {
		b := make([]byte, n)
		_, _ = random.Read(b)
		return b
	}
	items := []etcd.Item{
		{Name: "empty", Content: []byte{}},
		{Name: "zero", Content: []byte{0}},
		{Name: "full", Content: some(etcd.MaxContent)},
		{Name: "/", Content: []byte("/")},
		{Name: "//a//", Content: []byte("\n")},
		{Name: "../..", Content: []byte("\r\n")},
		{Name: "%2F", Content: []byte("%")},
		{Name: "größe 大 🙂", Content: []byte("größe 大 🙂")},
		{Name: "line\nfeed", Content: []byte("line\nfeed")},
		{Name: "\x00", Content: []byte("nul")},
		{Name: "\xff\xfe", Content: []byte{0xff, 0xfe}},
		{Name: strings.Repeat("/", 1024), Content: []byte("long")},
	}
	for b := range 256 {
		items = append(items, etcd.Item{Name: "byte" + string([]byte{byte(b)}), Content: some(b * 10)})
	}
	for n := 1; n < etcd.MaxContent; n *= 3 {
		items = append(items, etcd.Item{Name: fmt.Sprint("size ", n), Content: some(n), Settings: orchestrator.TaskSettings{Instances: n}})
	}
	return items
}

func TestE3_AnyBytesSurviveRestarts(t *testing.T) {
	dir := t.TempDir()
	items := anything()
	total := 0
	s := startServer(t, embed.Config{Dir: dir})
	r := newRegistry(t, newClient(t, clientConfig(s.Endpoint())))
	for _, item := range items {
		_, err := r.Create(t.Context(), item)
		require.NoError(t, err, "%q", item.Name)
		total += len(item.Content)
	}
	t.Logf("%d tasks, %d bytes", len(items), total)
	for range 2 {
		require.NoError(t, s.Close())
		s = startServer(t, embed.Config{Dir: dir})
		r = newRegistry(t, newClient(t, clientConfig(s.Endpoint())))
		for _, want := range items {
			got, err := r.Get(t.Context(), want.Name)
			require.NoError(t, err, "%q", want.Name)
			require.Equal(t, want.Name, got.Name)
			require.Truef(t, bytes.Equal(want.Content, got.Content), "%q", want.Name)
			require.Equal(t, max(want.Settings.Instances, 1), got.Settings.Instances)
		}
		listed := make(map[string][]byte)
		after := ""
		for {
			page, err := r.List(t.Context(), after, 7)
			require.NoError(t, err)
			for _, item := range page {
				require.NotContains(t, listed, item.Name)
				listed[item.Name] = item.Content
				after = item.Name
			}
			if len(page) < 7 {
				break
			}
		}
		require.Len(t, listed, len(items))
		for _, want := range items {
			require.Truef(t, bytes.Equal(want.Content, listed[want.Name]), "%q", want.Name)
		}
	}
}

func TestE3_ListIsInPages(t *testing.T) {
	r := newRegistry(t, startEtcd(t))
	page, err := r.List(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
	want := make(map[string]orchestrator.TaskSettings)
	for i := range 25 {
		s := orchestrator.TaskSettings{Instances: i % 3}
		want[fmt.Sprint(i)] = s
		_, err := r.Create(t.Context(), etcd.Item{Name: fmt.Sprint(i), Settings: s})
		require.NoError(t, err)
	}
	var sizes []int
	got := make(map[string]orchestrator.TaskSettings)
	for after := ""; len(sizes) == 0 || sizes[len(sizes)-1] > 0; {
		page, err := r.List(t.Context(), after, 10)
		require.NoError(t, err)
		sizes = append(sizes, len(page))
		for _, item := range page {
			got[item.Name] = item.Settings
			after = item.Name
		}
	}
	require.Equal(t, []int{10, 10, 5, 0}, sizes)
	for name, s := range want {
		require.Equal(t, max(s.Instances, 1), got[name].Instances, name)
	}
	for _, limit := range []int{-1, 0, etcd.MaxList + 1} {
		_, err := r.List(t.Context(), "", limit)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
}

// A foreign key does not hide the tasks after it.
func TestE3_ListSkipsForeignKeys(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	for i := range 6 {
		_, err := r.Create(t.Context(), etcd.Item{Name: fmt.Sprint("t", i)})
		require.NoError(t, err)
	}
	for _, key := range []string{"t0 x", "t0 y", "t3 x"} {
		_, err := c.Put(t.Context(), "/work/registry/"+key, "")
		require.NoError(t, err)
	}
	for limit, want := range map[int]int{1: 1, 2: 2, 5: 5, 6: 6, 7: 6} {
		items, err := r.List(t.Context(), "", limit)
		require.NoError(t, err)
		require.Len(t, items, want, "limit %d", limit)
	}
}

// TestE3_TheLargestContent writes the largest content with settings, by each method.
func TestE3_TheLargestContent(t *testing.T) {
	r := newRegistry(t, startEtcd(t))
	largest := func(b byte) etcd.Item {
		return etcd.Item{Name: "a", Content: bytes.Repeat([]byte{b}, etcd.MaxContent), Settings: orchestrator.TaskSettings{Instances: 3}}
	}
	_, created, err := r.Put(t.Context(), largest(1))
	require.NoError(t, err)
	require.True(t, created)
	_, created, err = r.Put(t.Context(), largest(2))
	require.NoError(t, err)
	require.False(t, created)
	got, err := r.Get(t.Context(), "a")
	require.NoError(t, err)
	require.True(t, bytes.Equal(largest(2).Content, got.Content))
	require.NoError(t, r.Delete(t.Context(), "a"))
	_, err = r.Create(t.Context(), largest(3))
	require.NoError(t, err)
}

func TestE3_WhatIsRefused(t *testing.T) {
	r := newRegistry(t, startEtcd(t))
	_, err := r.Create(t.Context(), etcd.Item{Name: "a", Content: make([]byte, etcd.MaxContent+1)})
	require.ErrorIs(t, err, etcd.ErrTooLarge)
	require.ErrorContains(t, err, "1048577")
	_, _, err = r.Put(t.Context(), etcd.Item{Name: "a", Content: make([]byte, etcd.MaxContent+1)})
	require.ErrorIs(t, err, etcd.ErrTooLarge)
	for _, item := range []etcd.Item{
		{Name: ""},
		{Name: strings.Repeat("x", 1025)},
		{Name: "a", Settings: orchestrator.TaskSettings{Instances: -2}},
		{Name: "a", Settings: orchestrator.TaskSettings{Handoff: 9}},
	} {
		_, err := r.Create(t.Context(), item)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		_, _, err = r.Put(t.Context(), item)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		_, err = r.CompareAndSwap(t.Context(), etcd.Item{Name: item.Name}, item)
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
	}
	page, err := r.List(t.Context(), "", 10)
	require.NoError(t, err)
	require.Empty(t, page)
}

func TestE3_Drains(t *testing.T) {
	r := newRegistry(t, startEtcd(t))
	require.NoError(t, r.Drain(t.Context(), "b/1"))
	require.NoError(t, r.Drain(t.Context(), "a"))
	require.NoError(t, r.Drain(t.Context(), "a"))
	names, err := r.Draining(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b/1"}, names)
	require.NoError(t, r.Undrain(t.Context(), "a"))
	require.NoError(t, r.Undrain(t.Context(), "nobody"))
	names, err = r.Draining(t.Context())
	require.NoError(t, err)
	require.Equal(t, []string{"b/1"}, names)
}

func TestE3_SettingsInJSON(t *testing.T) {
	for text, want := range map[string]orchestrator.TaskSettings{
		`{}`:                             {Instances: 1},
		`{"instances":3,"later":true}`:   {Instances: 3},
		`{"handoff":"start then stop"}`:  {Instances: 1, Handoff: orchestrator.StartThenStop},
		`{"handoff":"default"}`:          {Instances: 1},
		`{"requires":["b","a","b"]}`:     {Instances: 1, Requires: []string{"a", "b"}},
		`{"requires":[""]}`:              {Instances: 7},
		`{"weight":-1}`:                  {Instances: 7},
		`{"instances":-1}`:               {Instances: -1},
		`{"instances":0}`:                {Instances: -1},
		`{"instances":-2}`:               {Instances: 7},
		`{"handoff":"any way you like"}`: {Instances: 7},
		`two`:                            {Instances: 7},
	} {
		got := orchestrator.TaskSettings{Instances: 7} // unchanged if reading fails
		err := json.Unmarshal([]byte(text), &got)
		require.Equal(t, want, got, text)
		require.Equal(t, want.Instances == 7, err != nil, text)
	}
}

// heard is the state of the registry according to Watch.
type heard struct {
	mu    sync.Mutex
	items map[string]etcd.ItemChange
	calls chan struct{}
}

func watch(t *testing.T, r *etcd.Registry) *heard {
	t.Helper()
	h := &heard{items: make(map[string]etcd.ItemChange), calls: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Watch(ctx, h.hear)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return h
}

func (h *heard) hear(changes []etcd.ItemChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, ch := range changes {
		if ch.Revision == 0 {
			delete(h.items, ch.Name)
		} else {
			h.items[ch.Name] = ch
		}
	}
	select {
	case h.calls <- struct{}{}:
	default:
	}
}

// until waits until the state satisfies enough.
func (h *heard) until(t *testing.T, enough func(map[string]etcd.ItemChange) bool) {
	t.Helper()
	for {
		h.mu.Lock()
		ok := enough(h.items)
		h.mu.Unlock()
		if ok {
			return
		}
		receive(t, h.calls)
	}
}

func TestE3_Watch(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	_, err := r.Create(t.Context(), etcd.Item{Name: "before"})
	require.NoError(t, err)
	h := watch(t, r)
	h.until(t, func(m map[string]etcd.ItemChange) bool { return len(m) == 1 })

	item, err := r.Create(t.Context(), etcd.Item{Name: "a", Settings: orchestrator.TaskSettings{Instances: 2}})
	require.NoError(t, err)
	h.until(t, func(m map[string]etcd.ItemChange) bool {
		return reflect.DeepEqual(m["a"], etcd.ItemChange{Name: "a", Revision: item.Revision, Settings: item.Settings})
	})
	require.NoError(t, r.Configure(t.Context(), "a", orchestrator.TaskSettings{}))
	h.until(t, func(m map[string]etcd.ItemChange) bool {
		return m["a"].Settings.Equal(orchestrator.TaskSettings{Instances: 1})
	})

	// Values that other programs write are ignored if they are invalid.
	_, err = c.Put(t.Context(), "/work/tasks/a", "nonsense")
	require.NoError(t, err)
	_, err = c.Put(t.Context(), "/work/tasks/alone", `{"instances":5}`)
	require.NoError(t, err)
	require.NoError(t, r.Delete(t.Context(), "before"))
	h.until(t, func(m map[string]etcd.ItemChange) bool { return len(m) == 1 })
	require.NotContains(t, h.items, "alone")
}

// TestE6_RegistryBurst makes 10,000 updates and compares the final states, so that a
// lost event would show.
func TestE6_RegistryBurst(t *testing.T) {
	s := startServer(t, embed.Config{})
	r := newRegistry(t, newClient(t, clientConfig(s.Endpoint())))
	through, p := startProxy(t, s)
	h := watch(t, newRegistry(t, through))
	const writers, each = 20, 200
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				name := fmt.Sprint(w, "/", i%50)
				var err error
				if i%9 == 8 {
					err = r.Delete(t.Context(), name)
				} else {
					_, _, err = r.Put(t.Context(), etcd.Item{Name: name, Settings: orchestrator.TaskSettings{Instances: i%3 + 1}})
				}
				if err != nil && i%9 != 8 {
					t.Error(err)
					return
				}
				if w == 0 && i%40 == 20 {
					p.Reset()
				}
			}
		})
	}
	wg.Wait()
	want := make(map[string]etcd.ItemChange)
	for after := ""; ; {
		page, err := r.List(t.Context(), after, etcd.MaxList)
		require.NoError(t, err)
		for _, item := range page {
			want[item.Name] = etcd.ItemChange{Name: item.Name, Revision: item.Revision, Settings: item.Settings}
			after = item.Name
		}
		if len(page) < etcd.MaxList {
			break
		}
	}
	last, err := r.Create(t.Context(), etcd.Item{Name: "last"})
	require.NoError(t, err)
	h.until(t, func(m map[string]etcd.ItemChange) bool { return m["last"].Revision == last.Revision })
	delete(h.items, "last")
	require.Equal(t, want, h.items)
}

func TestE3_FeedLoadsBeforeItReturns(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	want := make(map[string]int)
	for i := range 1500 { // more than a page
		name := fmt.Sprint("task/", i)
		want[name] = i%3 + 1
		_, _, err := r.Put(t.Context(), etcd.Item{Name: name, Settings: orchestrator.TaskSettings{Instances: i%3 + 1}})
		require.NoError(t, err)
	}
	k := stand(t, c, "a")
	l := k.elected()
	o := newTold()
	require.NoError(t, r.Feed(t.Context(), l, o))
	o.mu.Lock()
	require.Equal(t, want, o.tasks)
	require.Equal(t, []string{"tasks 1500"}, o.calls, "one call, because unknown tasks are unexpected")
	o.mu.Unlock()

	require.NoError(t, r.Delete(t.Context(), "task/7"))
	_, err := r.Create(t.Context(), etcd.Item{Name: "new"})
	require.NoError(t, err)
	o.until(t, func() bool { return len(o.calls) >= 3 })
	require.Equal(t, []string{"tasks 1500", "remove task/7", "add new"}, o.calls)

	k.resign <- nil
	require.NoError(t, receive(t, k.result))
	_, err = r.Create(t.Context(), etcd.Item{Name: "afterwards"})
	require.NoError(t, err)
	require.Error(t, r.Feed(t.Context(), l, o), "the leadership has ended")
	require.Len(t, o.calls, 3)
}
