package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
	"github.com/f8949c05/orchestrator/worker"
)

func newItem(name, content string) etcd.Item {
	return etcd.Item{Task: replica.Task{Name: name}, Content: []byte(content)}
}

func TestE3_Registry(t *testing.T) {
	r := etcd.NewRegistry(clientOf(t, startServer(t, embed.Config{})), unique())
	ctx := t.Context()
	odd := "ü/\"'\\\n\x00\xff"
	_, err := r.Get(ctx, odd)
	require.ErrorIs(t, err, etcd.ErrNotFound)

	full := etcd.Item{
		Task: replica.Task{
			Name: odd, Instances: 3, Handoff: orchestrator.StartThenStop, Requires: []string{"disk=ü"}, MaxPerZone: 1, Weight: 7,
			Input: 5, Generation: 5,
		},
		Content: []byte("\x00\xff\n"),
	}
	n, err := r.CompareAndPut(ctx, full, newItem("a", "one"))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	got, err := r.Get(ctx, odd)
	require.NoError(t, err)
	require.NotZero(t, got.Revision)
	require.NotEqual(t, int64(5), got.Input)
	want := full
	want.Revision, want.Input, want.Generation = got.Revision, got.Input, 0
	require.Equal(t, want, got)

	_, err = r.CompareAndPut(ctx, newItem("b", ""), newItem("a", "two")) // it exists
	require.ErrorIs(t, err, etcd.ErrChanged)
	require.ErrorContains(t, err, `put task "a"`)
	_, err = r.Get(ctx, "b")
	require.ErrorIs(t, err, etcd.ErrNotFound, "the transaction was not written")

	a, err := r.Get(ctx, "a")
	require.NoError(t, err)
	update := a
	update.Content = []byte("two")
	_, err = r.CompareAndPut(ctx, update)
	require.NoError(t, err)
	_, err = r.CompareAndPut(ctx, update) // with a revision of before
	require.ErrorIs(t, err, etcd.ErrChanged)
	_, err = r.CompareAndDelete(ctx, a)
	require.ErrorIs(t, err, etcd.ErrChanged)
	was := a.Input
	a, err = r.Get(ctx, "a")
	require.NoError(t, err)
	require.NotEqual(t, was, a.Input, "the content is another one")
	was, a.Weight = a.Input, 9
	_, err = r.Put(ctx, a)
	require.NoError(t, err)
	a, err = r.Get(ctx, "a")
	require.NoError(t, err)
	require.Equal(t, was, a.Input, "the content is the same, so the running task is not told")
	_, err = r.CompareAndDelete(ctx, a)
	require.NoError(t, err)
	_, err = r.CompareAndDelete(ctx, a)
	require.ErrorIs(t, err, etcd.ErrChanged)
	n, err = r.Delete(ctx, odd, "never")
	require.NoError(t, err)
	require.Equal(t, 2, n)
	all, err := r.List(ctx, "", 10)
	require.NoError(t, err)
	require.Empty(t, all)
}

func TestE3_SurvivesARestart(t *testing.T) {
	s := newRestarting(t, embed.Config{Dir: t.TempDir() + "/data"})
	prefix := unique()
	r := etcd.NewRegistry(clientOf(t, s.server), prefix)
	_, err := r.Put(t.Context(), newItem("a", "\x00\xff\n"))
	require.NoError(t, err)
	before, err := r.Get(t.Context(), "a")
	require.NoError(t, err)
	s.stop()
	s.start()
	r = etcd.NewRegistry(clientOf(t, s.server), prefix)
	after, err := r.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, before, after)
	_, err = r.CompareAndPut(t.Context(), after)
	require.NoError(t, err)
}

func TestBadInput_Registry(t *testing.T) {
	s := startServer(t, embed.Config{})
	r := etcd.NewRegistry(clientOf(t, s), unique())
	for want, item := range map[string]etcd.Item{
		"a name has 1 to 1024 bytes":                          newItem("", ""),
		"a name has 1 to 1024 bytes ":                         newItem(strings.Repeat("x", 1025), ""),
		"the content has 1048577 bytes: at most 1048576":      {Task: replica.Task{Name: "x"}, Content: make([]byte, etcd.MaxContent+1)},
		"put task \"x\": " + replica.ErrInvalid.Error():       {Task: replica.Task{Name: "x", Instances: -2}},
		"put task \"x\": " + replica.ErrInvalid.Error() + ":": {Task: replica.Task{Name: "x", Weight: -1}},
	} {
		n, err := r.Put(t.Context(), newItem("first", ""), item)
		require.ErrorIs(t, err, replica.ErrInvalid)
		require.ErrorContains(t, err, strings.TrimSpace(want))
		require.Zero(t, n)
	}
	_, err := r.List(t.Context(), "", 0)
	require.ErrorIs(t, err, replica.ErrInvalid)
	all, err := r.List(t.Context(), "", 1)
	require.NoError(t, err)
	require.Empty(t, all, "nothing is written")
	_, err = r.Put(t.Context(), etcd.Item{Task: replica.Task{Name: "x"}, Content: make([]byte, etcd.MaxContent)})
	require.NoError(t, err)

	bad := etcd.NewRegistry(nil, "/x")
	_, err = bad.Put(t.Context(), newItem("a", ""))
	require.ErrorIs(t, err, replica.ErrInvalid)
	_, err = bad.Get(t.Context(), "a")
	require.ErrorIs(t, err, replica.ErrInvalid)
	_, err = bad.List(t.Context(), "", 1)
	require.ErrorIs(t, err, replica.ErrInvalid)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = r.Put(ended, newItem("a", ""))
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, r.Watch(ended, nil), "its context has ended")
}

// Many tasks in one call.
func TestE6_ManyTasks(t *testing.T) {
	r := etcd.NewRegistry(clientOf(t, startServer(t, embed.Config{})), unique())
	items := make([]etcd.Item, 10_000)
	for i := range items {
		items[i] = newItem(fmt.Sprintf("t%05d", i), fmt.Sprint("content ", i))
	}
	began := time.Now()
	n, err := r.Put(t.Context(), items...)
	require.NoError(t, err)
	require.Equal(t, len(items), n)
	t.Logf("%d tasks in %v", n, time.Since(began))
	var names []string
	for after := ""; ; after = names[len(names)-1] {
		page, err := r.List(t.Context(), after, 3000)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		for _, item := range page {
			names = append(names, item.Name)
		}
	}
	require.Len(t, names, len(items))
	require.Equal(t, "t09999", names[len(names)-1])
	n, err = r.Put(t.Context(), newItem("twice", "1"), newItem("twice", "2"))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	got, err := r.Get(t.Context(), "twice")
	require.NoError(t, err)
	require.Equal(t, "2", string(got.Content))
	large := make([]etcd.Item, 5)
	for i := range large {
		large[i] = etcd.Item{Task: replica.Task{Name: fmt.Sprint("large", i)}, Content: bytes.Repeat([]byte{7}, 900_000)}
	}
	for i := range 60 { // their keys are large: etcd gets four bytes for each of the name
		large = append(large, etcd.Item{Task: replica.Task{Name: fmt.Sprint(strings.Repeat("\x01", 1020), i)}, Content: make([]byte, 15_000)})
	}
	n, err = r.Put(t.Context(), large...)
	require.NoError(t, err)
	require.Equal(t, len(large), n)
	n, err = r.Delete(t.Context(), names...)
	require.NoError(t, err)
	require.Equal(t, len(names), n)
}

// told runs a Watch, and returns what it tells.
func told(t *testing.T, r *etcd.Registry) <-chan map[string]replica.Task {
	all := make(chan map[string]replica.Task)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- r.Watch(ctx, func(tasks []replica.Task) error {
			byName := make(map[string]replica.Task)
			for _, task := range tasks {
				byName[task.Name] = task
			}
			select {
			case all <- byName:
			case <-ctx.Done():
			}
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	return all
}

func TestE3_Watch(t *testing.T) {
	prefix := unique()
	client := clientOf(t, startServer(t, embed.Config{}))
	r := etcd.NewRegistry(client, prefix)
	_, err := r.Put(t.Context(), newItem("a", "1"))
	require.NoError(t, err)
	tells := told(t, r)
	first := <-tells
	require.Contains(t, first, "a")
	_, err = r.Put(t.Context(), newItem("a", "2"), newItem("b", ""))
	require.NoError(t, err)
	next := <-tells
	require.Len(t, next, 2)
	require.NotEqual(t, first["a"].Input, next["a"].Input)
	_, err = r.Delete(t.Context(), "a")
	require.NoError(t, err)
	require.NotContains(t, <-tells, "a")
	_, err = client.Put(t.Context(), prefix+"registry/b", "by hand")
	require.NoError(t, err)
	require.Less(t, (<-tells)["b"].Instances, -1, "a bad row, so the task stays as it was")

	why := errors.New("enough")
	require.ErrorIs(t, r.Watch(t.Context(), func([]replica.Task) error { return why }), why)
}

// A watch that falls behind a compaction reads everything anew.
func TestE6_WatchCompacted(t *testing.T) {
	client := clientOf(t, startServer(t, embed.Config{}))
	r := etcd.NewRegistry(client, unique())
	tells := 0
	err := r.Watch(t.Context(), func(tasks []replica.Task) error {
		if tells++; len(tasks) == 3 {
			return errors.New("all three")
		}
		for _, name := range []string{"a", "b", "c"} { // the watch begins at a revision that is gone
			_, err := r.Put(t.Context(), newItem(name, fmt.Sprint(tells)))
			require.NoError(t, err)
		}
		resp, err := client.Get(t.Context(), "x")
		require.NoError(t, err)
		_, err = client.Compact(t.Context(), resp.Header.Revision)
		require.NoError(t, err)
		return nil
	})
	require.ErrorContains(t, err, "all three")
}

// A watch that is cut, and behind a compaction when it is resumed, loses nothing.
func TestE6_WatchCutAndCompacted(t *testing.T) {
	t.Parallel() // it mostly waits
	s := startServer(t, embed.Config{})
	p, err := netfault.New(strings.TrimPrefix(s.Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	client, prefix := clientOf(t, s), unique()
	near := etcd.NewRegistry(client, prefix)
	tells := told(t, etcd.NewRegistry(dial(t, clientv3.Config{
		Endpoints: []string{"http://" + p.Addr()}, Logger: zap.NewNop(), DialKeepAliveTime: 200 * time.Millisecond, DialKeepAliveTimeout: 200 * time.Millisecond,
	}), prefix))
	require.Empty(t, <-tells)
	for i := range 9 {
		[]func(){p.Reset, p.Refuse, func() { p.Cut(netfault.Down) }}[i%3]()
		_, err := near.Put(t.Context(), newItem("changes", fmt.Sprint(i)), newItem(fmt.Sprint("comes", i), ""))
		require.NoError(t, err)
		_, err = near.Delete(t.Context(), fmt.Sprint("comes", i-1))
		require.NoError(t, err)
		if i%2 == 0 {
			resp, err := client.Get(t.Context(), prefix)
			require.NoError(t, err)
			_, err = client.Compact(t.Context(), resp.Header.Revision)
			require.NoError(t, err)
		}
		p.Heal()
		want, err := near.List(t.Context(), "", 10)
		require.NoError(t, err)
		for got := range tells {
			if len(got) == 2 && got["changes"].Input == want[0].Input && got[want[1].Name].Name != "" {
				break
			}
		}
	}
}

// An etcd that was set up anew, or restored, behind the same address has lower revisions, at which
// a watch that is resumed stays silent.
func TestE6_AnotherCluster(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRestarting(t, embed.Config{})
	client := clientOf(t, r.server)
	registry := etcd.NewRegistry(client, "/p/")
	for i := range 20 {
		_, err := registry.Put(t.Context(), newItem(fmt.Sprint("t", i), ""))
		require.NoError(t, err)
	}
	tells := told(t, registry)
	require.Len(t, <-tells, 20)
	r.stop()
	r.start()
	_, err := etcd.NewRegistry(clientOf(t, r.server), "/p/").Put(t.Context(), newItem("restored", ""))
	require.NoError(t, err)
	for got := range tells {
		if len(got) == 1 {
			require.Contains(t, got, "restored")
			return
		}
	}
}

// An etcd that was set back has soon had as many changes as before, so its revisions are no lower.
func TestE6_SetBackAndCaughtUp(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRestarting(t, embed.Config{Dir: t.TempDir() + "/data"})
	registry := etcd.NewRegistry(clientOf(t, r.server), "/p/")
	_, err := registry.Put(t.Context(), newItem("kept", ""))
	require.NoError(t, err)
	r.save()
	r.stop()
	r.start()
	_, err = registry.Put(t.Context(), newItem("lost", ""))
	require.NoError(t, err)
	tells := told(t, registry)
	require.Contains(t, <-tells, "lost")
	r.restore()
	for i := range 20 {
		_, err = etcd.NewRegistry(clientOf(t, r.server), "/p/").Put(t.Context(), newItem(fmt.Sprint("t", i), ""))
		require.NoError(t, err)
	}
	for got := range tells {
		if len(got) == 21 {
			require.NotContains(t, got, "lost")
			return
		}
	}
}

// A user changes a content, and the task that runs reads it again, also if it began with a content that
// was there only while no replica led.
func TestE3_AnUpdateReachesTheTask(t *testing.T) {
	t.Parallel() // it waits for a lease
	client := clientOf(t, startServer(t, embed.Config{}))
	r := etcd.NewRegistry(client, "/p/")
	_, err := r.Put(t.Context(), newItem("a", "1"))
	require.NoError(t, err)
	read, fail, again := make(chan string), make(chan error), make(chan struct{})
	source := func(ctx context.Context, tell func([]replica.Task) error) error {
		first, end := context.WithCancel(ctx)
		defer end()
		if err := r.Watch(first, func(tasks []replica.Task) error { end(); return tell(tasks) }); err != nil {
			return err
		}
		select {
		case <-again:
		case <-ctx.Done():
		}
		return r.Watch(ctx, tell)
	}
	work := func(ctx context.Context, task string) error {
		for updated := worker.Updated(ctx); ; {
			item, err := r.Get(ctx, task)
			if err != nil {
				return err
			}
			select {
			case read <- string(item.Content):
			case <-ctx.Done():
				return ctx.Err()
			}
			select {
			case <-updated:
				updated = worker.Updated(ctx)
			case err := <-fail:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	quiet := slog.New(slog.DiscardHandler)
	ended := make(chan error, 1)
	go func() {
		ended <- replica.Run(ctx, etcd.New(client, "/p/", etcd.WithLogger(quiet)), source, work,
			replica.WithLease(time.Second, 100*time.Millisecond), replica.WithLogger(quiet))
	}()
	require.Equal(t, "1", <-read)
	put := func(content string) {
		item, err := r.Get(t.Context(), "a")
		require.NoError(t, err)
		item.Content = []byte(content)
		_, err = r.CompareAndPut(t.Context(), item)
		require.NoError(t, err)
	}
	put("2")
	fail <- errors.New("it runs again")
	require.Equal(t, "2", <-read)
	put("1")
	close(again)
	require.Equal(t, "1", <-read, "the order still has the first content")
	put("2")
	require.Equal(t, "2", <-read)
	stop()
	require.NoError(t, <-ended)
	all, err := client.Get(t.Context(), "/p/registry/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, all.Kvs, 1)
}

// A loss of the table leaves the registry alone, also if the table's key is missing.
func TestB7_RegistryStays(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	r := etcd.NewRegistry(l.client, l.prefix)
	_, err := r.Put(t.Context(), newItem("a", "1"))
	require.NoError(t, err)
	l.delete("table")
	l.requireAnother(l.a)
	got, err := r.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "1", string(got.Content))
}

// A task with its content, and a service that runs what the registry has.
func ExampleRegistry() {
	ctx := context.Background()
	server, err := embed.Start(ctx, embed.Config{NoFsync: true, Tick: 10 * time.Millisecond})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = server.Close() }()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = client.Close() }()

	registry := etcd.NewRegistry(client, "/pollers/")
	acme := etcd.Item{Task: replica.Task{Name: "acme", Weight: 3}, Content: []byte("interval: 10s")}
	if _, err := registry.CompareAndPut(ctx, acme); err != nil { // it creates the task
		fmt.Println(err)
		return
	}
	acme, err = registry.Get(ctx, "acme")
	if err != nil {
		fmt.Println(err)
		return
	}
	acme.Content = []byte("interval: 5s")
	_, err = registry.CompareAndPut(ctx, acme)
	fmt.Println("updated:", err)
	_, err = registry.CompareAndPut(ctx, acme) // somebody has changed it since it was read
	fmt.Println(err)
	// replica.Run(ctx, etcd.New(client, "/pollers/"), registry.Watch, poll) runs the tasks.

	// Output:
	// updated: <nil>
	// put task "acme": the task has changed
}
