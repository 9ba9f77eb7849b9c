package kubernetes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

// member is a member that makes calls one by one.
type member struct {
	t     *testing.T
	table *kubernetes.Table
	self  replica.Member
	last  replica.View
}

func newMember(t *testing.T, f *fake, table string) *member {
	m := &member{t: t, table: open(t, kubernetes.Config{URL: f.URL, Namespace: "test"}, table)}
	m.self = replica.Member{ID: uint64(tables.Add(1)) << 32, Name: "m", Lease: time.Second}
	return m
}

func (m *member) query() replica.Query {
	return replica.Query{Self: m.self.ID, Server: m.last.Server, Beats: true, Follow: true}
}

// read reads everything.
func (m *member) read() error {
	ctx, cancel := context.WithTimeout(m.t.Context(), 5*time.Second)
	defer cancel()
	v, err := m.table.Read(ctx, m.query())
	if err == nil {
		m.last = v
	}
	return err
}

// sync Syncs with a change of the Update.
func (m *member) sync(change func(u *replica.Update)) error {
	m.self.Heartbeat++
	u := replica.Update{Query: m.query(), Member: m.self, Epoch: m.last.Epoch}
	change(&u)
	ctx, cancel := context.WithTimeout(m.t.Context(), 30*time.Second)
	defer cancel()
	v, err := m.table.Sync(ctx, u)
	if err == nil {
		m.last = v
	}
	return err
}

// lead makes the member a leader.
func (m *member) lead() {
	m.t.Helper()
	require.NoError(m.t, m.read())
	require.NoError(m.t, m.sync(func(u *replica.Update) { u.Confirm = true }))
	epoch := max(m.last.Epoch, m.last.Seen) + 1<<32
	require.NoError(m.t, m.sync(func(u *replica.Update) { u.Campaign = epoch }))
	require.Equal(m.t, epoch, m.last.Epoch)
	require.NoError(m.t, m.read())
}

// write writes a batch.
func (m *member) write(version uint64, b replica.Batch) error {
	b.Epoch, b.Version = m.last.Epoch, m.last.Epoch+version
	for i := range b.Orders {
		b.Orders[i].Epoch, b.Orders[i].Version = b.Epoch, b.Version
	}
	return m.sync(func(u *replica.Update) { u.Batch = &b })
}

// A Role that lacks a verb is named after a third of a lease, and not before.
func TestErrors_VerbIsMissing(t *testing.T) {
	for _, verb := range []string{"get", "list", "watch", "create", "update"} {
		f := newFake(t)
		a := newMember(t, f, "pollers")
		require.NoError(t, a.read())
		require.NoError(t, a.sync(func(*replica.Update) {}))
		b := newMember(t, f, "pollers")
		b.last.Server = a.last.Server
		f.setFault(func(v string, _ *http.Request) int {
			if v == verb {
				return http.StatusForbidden
			}
			return 0
		})
		until := time.Now().Add(5 * time.Second)
		var err error
		for err == nil || strings.Contains(err.Error(), "it is repeated") {
			require.Less(t, time.Now(), until, verb)
			err = errors.Join(b.sync(func(*replica.Update) {}), b.read())
		}
		require.ErrorContains(t, err, "the Role lacks the verb "+verb)
		f.setFault(nil)
		require.NoError(t, b.read())
		require.NoError(t, b.sync(func(*replica.Update) {}))
	}
}

// An API server that begins answers 403 until it has loaded its Roles.
func TestErrors_ForbiddenForAMoment(t *testing.T) {
	f := newFake(t)
	a := newMember(t, f, "pollers")
	a.self.Lease = 10 * time.Second
	require.NoError(t, a.read())
	require.NoError(t, a.sync(func(*replica.Update) {}))
	until := time.Now().Add(500 * time.Millisecond)
	f.setFault(func(string, *http.Request) int {
		if time.Now().Before(until) {
			return http.StatusForbidden
		}
		return 0
	})
	require.NoError(t, a.sync(func(*replica.Update) {}))
}

// A token is read from its file again when it was renewed.
func TestErrors_TokenIsRenewed(t *testing.T) {
	f := newFake(t)
	f.setFault(func(_ string, r *http.Request) int {
		if r.Header.Get("Authorization") != "Bearer new" {
			return http.StatusUnauthorized
		}
		return 0
	})
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("old\n"), 0o600))
	table := open(t, kubernetes.Config{URL: f.URL, Namespace: "test", TokenFile: file}, "pollers")
	time.AfterFunc(300*time.Millisecond, func() { _ = os.WriteFile(file, []byte("new\n"), 0o600) })
	_, err := table.Read(t.Context(), replica.Query{Self: 1})
	require.NoError(t, err)
}

func TestErrors_Namespace(t *testing.T) {
	f := newFake(t)
	table := open(t, kubernetes.Config{URL: f.URL, Namespace: "none"}, "pollers")
	_, err := table.Read(t.Context(), replica.Query{Self: 1})
	require.ErrorContains(t, err, "namespace none does not exist")
}

func TestErrors_Arguments(t *testing.T) {
	c := kubernetes.Config{URL: "http://127.0.0.1", Namespace: "test"}
	for _, table := range []*kubernetes.Table{
		kubernetes.New(kubernetes.Config{Namespace: "test"}, "pollers"), kubernetes.New(kubernetes.Config{URL: "http://x"}, "pollers"), kubernetes.New(c, ""),
		kubernetes.New(c, "pollers", nil), kubernetes.New(c, "pollers", kubernetes.WithLogger(nil)),
	} {
		_, err := table.Sync(t.Context(), replica.Update{})
		require.ErrorIs(t, err, replica.ErrInvalid)
		require.ErrorIs(t, table.Wait(t.Context(), replica.Query{}), replica.ErrInvalid)
	}
}

// Leases of another program, of another table and of another version are left alone.
func TestErrors_Foreign(t *testing.T) {
	f := newFake(t)
	f.mu.Lock()
	f.store("pollers", map[string]any{"metadata": map[string]any{"name": "pollers", "uid": "x"}, "spec": map[string]any{"holderIdentity": "their-pod"}})
	f.mu.Unlock()
	err := newMember(t, f, "pollers").read()
	require.ErrorIs(t, err, replica.ErrForeign)
	require.ErrorContains(t, err, `"their-pod"`)

	require.NoError(t, newMember(t, f, "Other").read())
	name := ""
	for n := range f.leases {
		if n != "pollers" {
			name = n
		}
	}
	err = newMember(t, f, name).read()
	require.ErrorIs(t, err, replica.ErrForeign)
	require.ErrorContains(t, err, `"Other"`)
}

// What is too large is refused before anything is written.
func TestErrors_TooLarge(t *testing.T) {
	f := newFake(t)
	a := newMember(t, f, "pollers")
	a.lead()
	order := func(i int) replica.Order {
		return replica.Order{Member: a.self.ID, Task: fmt.Sprint(strings.Repeat("x", 1000), i)}
	}
	var many []replica.Order
	for i := range 200 {
		many = append(many, order(i))
	}
	require.NoError(t, a.write(1, replica.Batch{Orders: many}))
	version := f.version
	more := []replica.Order{}
	for i := range 100 {
		more = append(more, order(1000+i))
	}
	err := a.write(2, replica.Batch{Orders: more})
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorContains(t, err, "run fewer tasks on each replica")
	require.Equal(t, version, f.version, "something was written")
	err = a.write(2, replica.Batch{Tasks: []replica.Task{{Name: "t", Requires: []string{strings.Repeat("x", 40<<10)}}}})
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.NoError(t, a.write(2, replica.Batch{Orders: more[:1]}))
	require.NoError(t, a.read())
	require.Len(t, a.last.Orders, 201)
}

// The list in force has as many Leases as it needs. A new leader finds all of it, unless one was
// deleted: then a Source answers first.
func TestTasks_ManyLeases(t *testing.T) {
	f := newFake(t)
	a := newMember(t, f, "pollers")
	a.lead()
	want := map[string]bool{}
	for i := range uint64(5) {
		var tasks []replica.Task
		for j := range 1000 {
			tasks = append(tasks, replica.Task{Name: fmt.Sprintf("customer-%036d", i*1000+uint64(j)), Weight: 7})
			want[tasks[j].Name] = true
		}
		require.NoError(t, a.write(i+1, replica.Batch{Tasks: tasks, Listed: i == 4}))
	}
	gone := fmt.Sprintf("customer-%036d", 77)
	delete(want, gone)
	require.NoError(t, a.write(6, replica.Batch{Deleted: []string{gone}}))
	parts := 0
	for name := range f.leases {
		if strings.Contains(name, "-tasks-") {
			parts++
		}
	}
	require.Greater(t, parts, 4)
	b := newMember(t, f, "pollers")
	b.lead()
	got := map[string]bool{}
	for _, task := range b.last.Tasks {
		got[task.Name] = true
	}
	require.Equal(t, want, got)
	require.True(t, b.last.Listed)
	require.NotZero(t, f.drop(func(n string) bool { return strings.HasSuffix(n, "-tasks-1") }))
	c := newMember(t, f, "pollers")
	c.lead()
	require.Less(t, len(c.last.Tasks), len(want))
	require.False(t, c.last.Listed, "a part of the list is lost")
}

// O5: a leader whose epoch is below that of a record, after a loss, is followed by one above it.
func TestO5_LaterEpochAfterALoss(t *testing.T) {
	f := newFake(t)
	a := newMember(t, f, "pollers")
	a.lead()
	epoch := a.last.Epoch
	require.NotZero(t, f.drop(func(n string) bool { return n == "pollers" }))
	b := newMember(t, f, "pollers")
	require.NoError(t, b.read())
	require.NoError(t, b.sync(func(u *replica.Update) { u.Confirm = true }))
	require.NoError(t, b.sync(func(u *replica.Update) { u.Campaign = 5 }))
	require.Equal(t, uint64(5), b.last.Epoch)
	require.NoError(t, b.read())
	require.Zero(t, b.last.Leader)
	require.GreaterOrEqual(t, b.last.Seen, epoch)
	b.lead()
	require.Equal(t, b.self.ID, b.last.Leader)
}

// B7: a store that is set back is another Server, also if only the caller's own record shows it.
func TestB7_SetBack(t *testing.T) {
	for _, forgotten := range []int{1, 2, 3} {
		f := newFake(t)
		var log bytes.Buffer
		a := newMember(t, f, "pollers")
		a.table = kubernetes.New(kubernetes.Config{URL: f.URL, Namespace: "test"}, "pollers", kubernetes.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		t.Cleanup(func() { _ = a.table.Close() })
		a.lead()
		saved := f.save()
		for range forgotten {
			require.NoError(t, a.sync(func(*replica.Update) {}))
		}
		was := a.last.Server
		f.restore(saved)
		require.Eventually(t, func() bool {
			_ = a.sync(func(*replica.Update) {})
			return a.last.Server != was
		}, 10*time.Second, time.Millisecond)
		require.False(t, a.last.Confirmed)
		require.Zero(t, a.last.Leader)
		require.Contains(t, log.String(), "set back")
		a.lead()
	}
}

// A record that is deleted or edited by hand is shown as it was, and published anew with its report. So
// no leader is elected that would stop tasks because it knows of no report.
func TestMember_ChangedByHand(t *testing.T) {
	f := newFake(t)
	a, b := newMember(t, f, "pollers"), newMember(t, f, "pollers")
	a.lead()
	require.NoError(t, b.read())
	require.NoError(t, b.sync(func(*replica.Update) {}))
	require.NoError(t, b.sync(func(u *replica.Update) { u.Report, u.Reading = &replica.Report{Applied: 7}, b.last.Reading }))
	require.NoError(t, a.read())
	require.Equal(t, uint64(7), a.last.Reports[b.self.ID].Applied)
	record := func(n string) bool { return n == fmt.Sprintf("pollers-%016x", b.self.ID) }
	stored := b.self.Heartbeat
	for _, change := range []func() int{
		func() int { return f.drop(record) },
		func() int {
			return f.edit(record, func(l map[string]any) { meta(l)["annotations"] = map[string]any{} })
		},
	} {
		require.Equal(t, 1, change())
		require.NoError(t, a.read())
		i := slices.IndexFunc(a.last.Members, func(m replica.Member) bool { return m.ID == b.self.ID })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, b.self.Lease, a.last.Members[i].Lease)
		require.Contains(t, a.last.Beats, b.self.ID)
		require.NoError(t, b.sync(func(*replica.Update) {}))
		require.Equal(t, stored, b.last.Stored)
		require.NoError(t, a.read())
		require.Equal(t, uint64(7), a.last.Reports[b.self.ID].Applied)
		require.Equal(t, b.self.Heartbeat, a.last.Beats[b.self.ID])
	}
}

// The Leases of the last replica that leaves are deleted, but for the table and the list.
func TestLast_DeletesWhatIsLeft(t *testing.T) {
	f := newFake(t)
	a, b := newMember(t, f, "pollers"), newMember(t, f, "pollers")
	a.lead()
	require.NoError(t, b.read())
	require.NoError(t, b.sync(func(*replica.Update) {}))
	require.NoError(t, a.write(1, replica.Batch{Tasks: []replica.Task{{Name: "t"}}, Orders: []replica.Order{{Member: a.self.ID, Task: "t"}}}))
	for i, m := range []*member{b, a} {
		require.NoError(t, m.sync(func(u *replica.Update) { u.Left = []uint64{m.self.ID} }))
		require.Len(t, f.leases, []int{6, 2}[i])
	}
}

// A leader deletes the Leases of a member that has left, after a View has shown that it has.
func TestTidy(t *testing.T) {
	f := newFake(t)
	a, b := newMember(t, f, "pollers"), newMember(t, f, "pollers")
	a.lead()
	require.NoError(t, b.read())
	require.NoError(t, b.sync(func(*replica.Update) {}))
	require.NoError(t, a.write(1, replica.Batch{Orders: []replica.Order{{Member: b.self.ID, Task: "t"}}}))
	require.NoError(t, b.sync(func(u *replica.Update) { u.Left = []uint64{b.self.ID} }))
	count := len(f.leases)
	for range 3 {
		require.NoError(t, a.sync(func(*replica.Update) {}))
		require.True(t, slices.Contains(a.last.Gone, b.self.ID))
		require.Len(t, f.leases, count, "an order names it")
	}
	require.NoError(t, a.write(2, replica.Batch{Dropped: []replica.Order{{Member: b.self.ID, Task: "t"}}}))
	require.True(t, slices.Contains(a.last.Gone, b.self.ID))
	require.NoError(t, a.sync(func(*replica.Update) {}))
	require.Len(t, f.leases, count-2)
}
