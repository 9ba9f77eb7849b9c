package etcd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
)

// join adds a member's key, and returns its WorkerID and its lease.
func join(t *testing.T, c *clientv3.Client, name, value string) (etcd.WorkerID, clientv3.LeaseID) {
	t.Helper()
	lease, err := c.Grant(t.Context(), 60)
	require.NoError(t, err)
	resp, err := c.Put(t.Context(), "/work/members/"+name, value, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	return etcd.WorkerID{Name: name, Incarnation: resp.Header.Revision}, lease.ID
}

func TestE4_FeedFollowsTheMembers(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	m, err := etcd.NewMembership(c)
	require.NoError(t, err)
	_, err = r.Draining(t.Context()) // the first contact, which marks the prefix
	require.NoError(t, err)
	a, leaseOfA := join(t, c, "a", `{}`)
	b, _ := join(t, c, "b", `{"draining":true}`)
	require.NoError(t, r.Drain(t.Context(), "a"))
	require.NoError(t, r.Drain(t.Context(), "nobody"))

	k := stand(t, c, "leader")
	o := newTold()
	require.NoError(t, m.Feed(t.Context(), k.elected(), o))
	require.Equal(t, map[etcd.WorkerID]bool{a: true, b: true}, o.workers)
	require.Equal(t, []string{"workers 2"}, o.calls)

	require.NoError(t, r.Undrain(t.Context(), "a"))
	o.until(t, func() bool { return !o.workers[a] })
	began := time.Now()
	d, _ := join(t, c, "c%2Fd", `what is this`)
	d.Name = "c/d"
	o.until(t, func() bool { _, ok := o.workers[d]; return ok })
	t.Logf("a worker that joined was known after %v", time.Since(began))
	_, err = c.Put(t.Context(), "/work/members/c%2Fd", `{"draining":true}`)
	require.NoError(t, err)
	o.until(t, func() bool { return o.workers[d] })

	// A new member of the same name is another worker, however fast it joined.
	_, err = c.Revoke(t.Context(), leaseOfA)
	require.NoError(t, err)
	again, _ := join(t, c, "a", `{}`)
	o.until(t, func() bool { _, ok := o.workers[again]; return ok })
	require.NotContains(t, o.workers, a)
	require.Less(t, slices.Index(o.calls, fmt.Sprintf("remove a %d", a.Incarnation)),
		slices.Index(o.calls, fmt.Sprintf("add a %d", again.Incarnation)))

	require.NoError(t, r.Drain(t.Context(), "a"))
	o.until(t, func() bool { return o.workers[again] })
}

func TestE4_MembersShowTheirAttributes(t *testing.T) {
	s := newStage(t)
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(5*time.Second, time.Second))
	require.NoError(t, err)
	attributes := map[string]string{"zone": "x"}
	m, err := etcd.NewMember(s.client, "a", w, etcd.WithAttributes(attributes))
	require.NoError(t, err)
	attributes["zone"] = "y" // the map was copied
	joined := s.runMember("a", w, m).joined()
	members, err := etcd.NewMembership(s.client)
	require.NoError(t, err)
	list, err := members.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []etcd.MemberState{{WorkerID: joined, Attributes: map[string]string{"zone": "x"}}}, list)
}

func TestP10_MembersHaveSettings(t *testing.T) {
	s := newStage(t)
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(5*time.Second, time.Second))
	require.NoError(t, err)
	settings := orchestrator.WorkerSettings{Zone: "east", Labels: []string{"gpu", "disk=ssd"}, Share: 2, MaxTasks: 9}
	given := settings
	given.Labels = slices.Clone(settings.Labels)
	m, err := etcd.NewMember(s.client, "a", w, etcd.WithSettings(given))
	require.NoError(t, err)
	given.Labels[0] = "tpu" // the labels were copied
	a := s.runMember("a", w, m).joined()

	// A member of another program counts without the settings that cannot be read.
	bad := make(map[etcd.WorkerID]string)
	for name, value := range map[string]string{
		"b": `{"settings":{"zone":"west","labels":["!gpu"]},"draining":true}`,
		"c": `{"settings":{"labels":"gpu"},"draining":true}`,
		"d": `{"settings":7,"draining":true}`,
		"e": `{"settings":{"labels":["` + strings.Repeat("x", 257) + `"]},"draining":true}`,
	} {
		id, _ := join(t, s.client, name, value)
		bad[id] = name
	}
	f, _ := join(t, s.client, "f", `{"settings":{"zone":"west","later":{"x":1}},"later":true}`)

	var logs bytes.Buffer
	members, err := etcd.NewMembership(s.client, etcd.WithLogger(slog.New(slog.NewTextHandler(&logs, nil))))
	require.NoError(t, err)
	list, err := members.List(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 6)
	for _, m := range list {
		switch {
		case bad[m.WorkerID] != "":
			require.Equal(t, etcd.MemberState{WorkerID: m.WorkerID, Draining: true}, m)
			require.Contains(t, logs.String(), `level=ERROR msg="member's settings invalid, worker counts as one without labels" worker=`+m.Name)
		case m.WorkerID == a:
			require.Equal(t, settings, m.Settings)
		default:
			require.Equal(t, etcd.MemberState{WorkerID: f, Settings: orchestrator.WorkerSettings{Zone: "west"}}, m)
		}
	}
	k := stand(t, s.client, "leader")
	o := newTold()
	require.NoError(t, members.Feed(t.Context(), k.elected(), o))
	require.Equal(t, settings, o.settings[a])
	require.Len(t, o.workers, 6)

	_, err = etcd.NewMember(s.client, "a", w, etcd.WithSettings(orchestrator.WorkerSettings{MaxTasks: -1}))
	require.ErrorIs(t, err, orchestrator.ErrInvalid)
	require.ErrorContains(t, err, "WithSettings")
}

func TestE4_ListAndWatch(t *testing.T) {
	c := startEtcd(t)
	r := newRegistry(t, c)
	m, err := etcd.NewMembership(c)
	require.NoError(t, err)
	members, err := m.List(t.Context())
	require.NoError(t, err)
	require.Empty(t, members)

	heard := make(chan []etcd.MemberState, 100)
	ctx, stop := context.WithCancelCause(t.Context())
	result := make(chan error, 1)
	go func() { result <- m.Watch(ctx, func(members []etcd.MemberState) { heard <- members }) }()
	require.Empty(t, receive(t, heard))

	b, _ := join(t, c, "b", `{"attributes":{"zone":"x"}}`)
	a, lease := join(t, c, "a", `{"draining":true}`)
	require.NoError(t, r.Drain(t.Context(), "b"))
	want := []etcd.MemberState{{WorkerID: a, Draining: true}, {WorkerID: b, Draining: true, Attributes: map[string]string{"zone": "x"}}}
	members, err = m.List(t.Context())
	require.NoError(t, err)
	require.Equal(t, want, members)
	for members = nil; len(members) < 2 || !members[1].Draining; {
		members = receive(t, heard)
	}
	require.Equal(t, want, members)
	_, err = c.Revoke(t.Context(), lease)
	require.NoError(t, err)
	require.Equal(t, want[1:], receive(t, heard))
	stop(errEnough)
	require.ErrorIs(t, receive(t, result), errEnough)
}

func TestE4_WorkerIsItsName(t *testing.T) {
	w := etcd.WorkerID{Name: "a", Incarnation: 7}
	require.Equal(t, "a", w.String())
	text, err := w.MarshalText()
	require.NoError(t, err)
	require.Equal(t, "a", string(text))
	require.NotEqual(t, etcd.WorkerID{Name: "a", Incarnation: 8}, w)
}

func TestMemberState_InJSON(t *testing.T) {
	m := etcd.MemberState{
		WorkerID: etcd.WorkerID{Name: "w", Incarnation: 7}, Draining: true,
		Attributes: map[string]string{"version": "a"},
		Settings:   orchestrator.WorkerSettings{Zone: "east", Labels: []string{"gpu"}, Share: 2, MaxTasks: 9},
	}
	text, err := json.Marshal(m)
	require.NoError(t, err)
	require.JSONEq(t, `{"name": "w", "incarnation": 7, "draining": true, "attributes": {"version": "a"},
		"zone": "east", "labels": ["gpu"], "share": 2, "max_tasks": 9}`, string(text))
	var read etcd.MemberState
	require.NoError(t, json.Unmarshal(text, &read))
	require.Equal(t, m, read)
}

// told records the calls of an orchestrator's methods.
type told struct {
	mu      sync.Mutex
	tasks   map[string]int
	workers map[etcd.WorkerID]bool // value: draining
	// settings has those that UpdateWorkers was given.
	settings map[etcd.WorkerID]orchestrator.WorkerSettings
	calls    []string
	fail     error
	changed  chan struct{}
}

func newTold() *told {
	return &told{
		tasks: make(map[string]int), workers: make(map[etcd.WorkerID]bool),
		settings: make(map[etcd.WorkerID]orchestrator.WorkerSettings), changed: make(chan struct{}, 1),
	}
}

func (o *told) note(format string, args ...any) {
	o.calls = append(o.calls, fmt.Sprintf(format, args...))
	select {
	case o.changed <- struct{}{}:
	default:
	}
}

func (o *told) UpdateTasks(tasks []orchestrator.Task[string]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.tasks)
	for _, task := range tasks {
		o.tasks[task.Name] = max(task.Instances, 1)
	}
	o.note("tasks %d", len(tasks))
	return o.fail
}

func (o *told) AddTask(name string, _ ...orchestrator.TaskOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tasks[name] = -1 // options are opaque
	o.note("add %s", name)
	return o.fail
}

func (o *told) RemoveTask(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.tasks, name)
	o.note("remove %s", name)
}

func (o *told) UpdateWorkers(workers []orchestrator.Worker[etcd.WorkerID]) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.workers)
	for _, w := range workers {
		o.workers[w.Name] = w.Draining
		o.settings[w.Name] = w.Settings()
	}
	o.note("workers %d", len(workers))
	return o.fail
}

func (o *told) AddWorker(name etcd.WorkerID, opts ...orchestrator.WorkerOption) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.workers[name] = len(opts) > 1 // options are opaque; the first one has the settings
	o.note("add %s %d", name, name.Incarnation)
	return o.fail
}

func (o *told) RemoveWorker(name etcd.WorkerID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.workers, name)
	o.note("remove %s %d", name, name.Incarnation)
}

func (o *told) until(t *testing.T, enough func() bool) {
	t.Helper()
	for {
		o.mu.Lock()
		ok := enough()
		o.mu.Unlock()
		if ok {
			return
		}
		receive(t, o.changed)
	}
}
