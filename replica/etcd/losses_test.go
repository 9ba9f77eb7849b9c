package etcd_test

// B7: which changes are losses of acknowledged data, and which are not.

import (
	"bytes"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// loss is a confirmed table with two members, orders and tasks.
type loss struct {
	t      *testing.T
	client *clientv3.Client
	prefix string
	log    bytes.Buffer
	a, b   *member // a leads
	before replica.View
}

func newLoss(t *testing.T, client *clientv3.Client) *loss {
	t.Helper()
	l := &loss{t: t, client: client, prefix: unique()}
	l.a, l.b = newMember(l.table(), 1), newMember(l.table(), 2)
	l.a.lead(t)
	l.b.sync(t, func(u *replica.Update) { u.Report = &replica.Report{} })
	l.a.sync(t, func(u *replica.Update) { u.Report, u.Left = &replica.Report{}, []uint64{9} })
	l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: "a", Stop: true}}, Tasks: []replica.Task{{Name: "a"}}})
	l.before = l.a.write(t, &replica.Batch{
		Orders: []replica.Order{{Member: 1, Task: "a"}, {Member: 2, Task: "a", Stop: true}, {Member: 2, Task: "b"}},
		Tasks:  []replica.Task{{Name: "a", Weight: 1}, {Name: "b"}}, Listed: true,
	})
	l.b.sync(t, nil)
	return l
}

// table returns another client of the table.
func (l *loss) table() *etcd.Table {
	return etcd.New(l.client, l.prefix, etcd.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))))
}

// keys returns the values of all keys, without the prefix.
func (l *loss) keys() map[string]string {
	resp, err := l.client.Get(l.t.Context(), l.prefix, clientv3.WithPrefix())
	require.NoError(l.t, err)
	all := make(map[string]string)
	for _, kv := range resp.Kvs {
		all[strings.TrimPrefix(string(kv.Key), l.prefix)] = string(kv.Value)
	}
	return all
}

func (l *loss) put(key, value string) {
	_, err := l.client.Put(l.t.Context(), l.prefix+key, value)
	require.NoError(l.t, err)
}

func (l *loss) delete(key string, opts ...clientv3.OpOption) {
	resp, err := l.client.Delete(l.t.Context(), l.prefix+key, opts...)
	require.NoError(l.t, err)
	require.NotZero(l.t, resp.Deleted)
}

// requireAnother fails the test if a member sees the Server of before, or another one with each
// Sync, or if the table cannot be confirmed and led.
func (l *loss) requireAnother(m *member) {
	l.t.Helper()
	v := m.sync(l.t, func(u *replica.Update) { u.Confirm = u.Server == l.before.Server })
	require.NotEqual(l.t, l.before.Server, v.Server)
	require.False(l.t, v.Confirmed)
	require.False(l.t, v.Listed)
	require.Zero(l.t, v.Leader)
	require.GreaterOrEqual(l.t, v.Lease, 15*time.Second, "Confirm waits for it")
	l.requireWorks(m, v.Server)
	require.Contains(l.t, l.log.String(), "level=WARN")
	require.NotContains(l.t, strings.TrimSpace(l.log.String()), "\n", "one loss, one line")
}

// requireWorks fails the test unless the table of a Server can be confirmed and led, and orders be
// written.
func (l *loss) requireWorks(m *member, server string) {
	l.t.Helper()
	next := m.sync(l.t, func(u *replica.Update) { u.Confirm, u.Report = true, &replica.Report{} })
	require.Equal(l.t, server, next.Server)
	require.True(l.t, next.Confirmed)
	require.Equal(l.t, m.self.Heartbeat, next.Stored)
	epoch := max(next.Epoch, next.Seen) + 1<<32
	next = m.sync(l.t, func(u *replica.Update) { u.Campaign = epoch })
	require.Equal(l.t, m.self.ID, next.Leader)
	m.batch = epoch
	next = m.write(l.t, &replica.Batch{Orders: []replica.Order{{Member: 1, Task: "x"}}, Tasks: []replica.Task{{Name: "x"}}})
	require.Equal(l.t, server, next.Server)
	require.True(l.t, slices.ContainsFunc(next.Orders, func(o replica.Order) bool { return o.Task == "x" }))
	for _, other := range next.Members {
		require.Contains(l.t, []uint64{1, 2}, other.ID)
	}
}

// Each key is deleted, spoiled, changed and set back by hand, one at a time.
func TestB7_EachKeyByHand(t *testing.T) {
	t.Parallel() // it has its own server
	client := clientOf(t, startServer(t, embed.Config{}))
	// What is found by the next Sync of member 1, and by a campaign or a View that shows everything.
	sync := []string{"table", "batch", "epoch", "members/1", "beats/1", "orders/1"}
	campaign := []string{"members/1", "orders/1", "orders/2", "tasks/a", "tasks/b"}
	never := []string{"members/2", "beats/2", "reports/1", "reports/2", "removed/9", "table/members"}
	keys := slices.Sorted(maps.Keys(newLoss(t, client).keys()))
	require.ElementsMatch(t, keys, slices.Compact(slices.Sorted(slices.Values(slices.Concat(sync, campaign, never)))))
	for _, key := range keys {
		for name, change := range map[string]func(l *loss, was string){
			"deleted":  func(l *loss, _ string) { l.delete(key) },
			"spoiled":  func(l *loss, _ string) { l.put(key, "spoiled") },
			"changed":  func(l *loss, was string) { l.put(key, strings.Replace(was+" ", was[:1], was[:1]+" ", 1)) },
			"put anew": func(l *loss, was string) { l.delete(key); l.put(key, was) },
		} {
			if name == "put anew" && key == "epoch" || strings.HasSuffix(key, "/9") && name == "deleted" {
				continue // nothing has changed
			}
			t.Run(key+", "+name, func(t *testing.T) {
				l := newLoss(t, client)
				if name == "put anew" && strings.Contains(l.keys()[key], `"written":1}`) {
					return
				}
				change(l, l.keys()[key])
				switch {
				case slices.Contains(sync, key) && (key != "orders/1" || name != "deleted"):
					l.requireAnother(l.a)
				case slices.Contains(campaign, key):
					v, err := l.a.table.Read(t.Context(), l.a.query())
					require.NoError(t, err)
					require.NotEqual(t, l.before.Server, v.Server)
					l.requireAnother(l.a)

					l = newLoss(t, client)
					change(l, l.keys()[key])
					v = l.b.sync(t, func(u *replica.Update) { u.Follow, u.Campaign = false, u.Epoch+1<<33 })
					require.NotEqual(t, l.before.Server, v.Server)
					l.requireAnother(l.b)
				default:
					require.Equal(t, l.before.Server, l.a.sync(t, nil).Server)
					if kind, _, _ := strings.Cut(key, "/"); (kind == "members" || kind == "beats") && name != "put anew" {
						l.requireAnother(l.b) // with its own next Sync
					} else {
						l.requireWorks(l.a, l.before.Server)
					}
				}
			})
		}
	}
}

func TestB7_ManyKeysByHand(t *testing.T) {
	client := clientOf(t, startServer(t, embed.Config{}))
	for _, kinds := range [][]string{{""}, {"members/"}, {"beats/"}, {"members/", "beats/"}, {"orders/"}, {"orders/", "batch"}, {"tasks/"}, {"table"}, {"table", "epoch", "batch"}} {
		t.Run(strings.Join(kinds, " "), func(t *testing.T) {
			l := newLoss(t, client)
			for _, kind := range kinds {
				l.delete(kind, clientv3.WithPrefix())
			}
			if kinds[0] == "" {
				v := l.a.sync(t, nil)
				require.NotEqual(t, l.before.Server, v.Server)
				l.requireWorks(l.a, v.Server)
				return
			}
			v := l.b.sync(t, func(u *replica.Update) { u.Campaign = u.Epoch + 1<<33 })
			require.NotEqual(t, l.before.Server, v.Server)
			l.requireAnother(l.a)
			require.Equal(t, l.a.last.Server, l.b.sync(t, nil).Server)
		})
	}
}

// A record that cannot be read is one record that cannot be read, and its member can be evicted.
func TestBadInput_Records(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	l.put("reports/2", `{"applied":"5"}`)
	var v replica.View
	var err error
	for _, spoiled := range []string{"7", "", "null", `{"id":"7"}`, `{"id":"2","lease_ns":"long"}`, `{"id":"2","lease_ns":1}`} {
		l.put("members/2", spoiled)
		v, err = l.a.table.Read(t.Context(), l.a.query())
		require.NoError(t, err)
		require.Equal(t, l.before.Server, v.Server)
		require.Len(t, v.Members, 2)
		for _, m := range v.Members {
			require.Contains(t, []uint64{1, 2}, m.ID)
			require.Equal(t, m.ID == 2, m.Draining, "a member whose record cannot be read gets no tasks")
		}
		require.EqualValues(t, replica.MaxSeen, v.Reports[2].Applied)
	}
	was := v.Beats[2]
	l.put("beats/2", "spoiled")
	v, err = l.a.table.Read(t.Context(), l.a.query())
	require.NoError(t, err)
	require.NotEqual(t, was, v.Beats[2], "it has changed, so it is seen to move")
	v = l.a.write(t, &replica.Batch{Evict: map[uint64]uint64{2: v.Beats[2]}})
	require.Contains(t, v.Gone, uint64(2))
	require.Equal(t, l.before.Server, v.Server)
}

// The table was another one meanwhile: by the revision it is found nevertheless.
func TestB7_SetBackToAnEarlierServer(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRestarting(t, embed.Config{Dir: filepath.Join(t.TempDir(), "data")})
	l := newLoss(t, dial(t, clientv3.Config{Endpoints: []string{r.server.Endpoint()}}))
	r.save()
	l.delete("", clientv3.WithPrefix())
	for range 30 {
		l.a.sync(t, nil)
	}
	require.NotEqual(t, l.before.Server, l.a.last.Server)
	l.b.sync(t, nil)
	r.restore()
	again := newMember(l.a.table, 7) // the same process, which has lost its lease
	v := again.sync(t, nil)
	require.NotEqual(t, l.before.Server, v.Server)
	require.False(t, v.Confirmed)
	again.sync(t, func(u *replica.Update) { u.Left = []uint64{7} })
	require.Equal(t, v.Server, l.a.sync(t, nil).Server)
	require.Equal(t, v.Server, l.b.sync(t, nil).Server)
	l.requireWorks(l.a, v.Server)
}

// A copy of the data folder is put back, with the same cluster and an earlier revision.
func TestB7_RestoredData(t *testing.T) {
	t.Parallel()                                // it mostly waits
	for _, ahead := range []bool{false, true} { // other keys have taken more revisions since
		t.Run(fmt.Sprint("ahead ", ahead), func(t *testing.T) {
			r := newRestarting(t, embed.Config{Dir: filepath.Join(t.TempDir(), "data")})
			l := newLoss(t, dial(t, clientv3.Config{Endpoints: []string{r.server.Endpoint()}}))
			r.save()
			l.a.sync(t, nil)
			require.Equal(t, l.before.Server, l.b.sync(t, nil).Server, "a restart is no loss")
			r.restore()
			for i := 0; ahead && i < 10; i++ {
				_, err := l.client.Put(t.Context(), "/other", "")
				require.NoError(t, err)
			}
			l.requireAnother(l.a)
			require.Equal(t, l.a.last.Server, l.b.sync(t, nil).Server)
		})
	}
}

// A heartbeat writes before it reads. Its own revision does not hide that etcd was set back by one.
func TestB7_SetBackByOneRevision(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRestarting(t, embed.Config{Dir: filepath.Join(t.TempDir(), "data")})
	l := newLoss(t, dial(t, clientv3.Config{Endpoints: []string{r.server.Endpoint()}}))
	l.a.sync(t, nil)
	r.save()
	l.put("other", "")
	_, err := l.a.table.Read(t.Context(), l.a.query())
	require.NoError(t, err)
	r.restore()
	require.NotEqual(t, l.before.Server, l.a.sync(t, nil).Server)
}

// A heartbeat does not read the caller's report, and yet shows that it was deleted.
func TestB7_ReportDeleted(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	require.NotZero(t, l.b.sync(t, nil).Stored)
	l.delete("reports/2")
	require.Zero(t, l.b.sync(t, nil).Stored)
}

// The records are in another cluster, as after the restore of a snapshot, which keeps the versions of
// keys.
func TestB7_AnotherCluster(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	resp, err := l.client.Get(t.Context(), l.prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	l.client = clientOf(t, startServer(t, embed.Config{}))
	for _, kv := range resp.Kvs {
		for range kv.Version {
			l.put(strings.TrimPrefix(string(kv.Key), l.prefix), string(kv.Value))
		}
	}
	m := newMember(l.table(), 1)
	m.self.Heartbeat = 100
	l.requireAnother(m)
}

// Nothing was lost: Server stays.
func TestB7_NoLosses(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	for name, happens := range map[string]func(){
		"compaction": func() {
			resp, err := l.client.Get(t.Context(), l.prefix)
			require.NoError(t, err)
			_, err = l.client.Compact(t.Context(), resp.Header.Revision, clientv3.WithCompactPhysical())
			require.NoError(t, err)
		},
		"defragmentation": func() {
			_, err := l.client.Defragment(t.Context(), l.client.Endpoints()[0])
			require.NoError(t, err)
		},
		"another table": func() { newLoss(t, l.client) },
		"another key":   func() { l.put("notes", "mine") },
	} {
		t.Run(name, func(t *testing.T) {
			happens()
			for range 2 {
				v := l.a.sync(t, nil)
				require.Equal(t, l.before.Server, v.Server)
				require.Len(t, v.Members, 2)
				require.Len(t, v.Orders, 3)
			}
			require.Equal(t, l.before.Server, l.b.sync(t, nil).Server)
		})
	}
}
