package etcd_test

// etcd that is away, compacted or full; watches; batches of any size.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// A call while etcd is away ends with its context and says why. Afterwards everything goes on.
func TestB5_KilledAndBack(t *testing.T) {
	t.Parallel() // it mostly waits
	r := newRestarting(t, embed.Config{Dir: t.TempDir() + "/data"})
	l := newLoss(t, dial(t, clientv3.Config{Endpoints: []string{r.server.Endpoint()}, Logger: zap.NewNop()}))
	waits := make(chan error, 1)
	v := l.a.last
	go func() {
		waits <- l.a.table.Wait(t.Context(), replica.Query{Self: 1, Server: v.Server, Since: v.Revision})
	}()
	r.stop()
	away := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := l.b.try(ctx, nil)
		return err
	}
	err := away()
	for !errors.Is(err, context.DeadlineExceeded) { // the connection has broken under the first one
		require.Error(t, err)
		err = away()
	}
	require.ErrorContains(t, err, "connection refused")
	require.ErrorContains(t, err, "table "+l.prefix)
	r.start()
	require.Equal(t, l.before.Server, l.b.sync(t, nil).Server)
	l.b.self.Name = "another"
	v = l.b.sync(t, nil)
	require.Equal(t, l.before.Server, v.Server)
	require.NoError(t, <-waits, "the watch of the leader goes on, or says that it cannot tell")
}

// Views of before a compaction, and watches from before one, lose nothing.
func TestE6_Compacted(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	old := l.a.last
	for range 5 {
		l.b.sync(t, nil)
	}
	l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: "late"}}})
	resp, err := l.client.Get(t.Context(), l.prefix)
	require.NoError(t, err)
	_, err = l.client.Compact(t.Context(), resp.Header.Revision)
	require.NoError(t, err)
	q := l.a.query()
	q.Since = old.Revision
	require.NoError(t, l.a.table.Wait(t.Context(), q), "something may have changed")
	v, err := l.a.table.Read(t.Context(), q)
	require.NoError(t, err)
	require.False(t, v.Full)
	require.Equal(t, []replica.Order{{Member: 2, Task: "late", Version: l.a.batch}}, ordersFor(v, "late"))
}

// ordersFor returns the orders for a task.
func ordersFor(v replica.View, task string) (found []replica.Order) {
	for _, o := range v.Orders {
		if o.Task == task {
			found = append(found, o)
		}
	}
	return found
}

// A full etcd answers reads, and says what to do.
func TestFullStore(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
		resp, err := l.client.Status(t.Context(), l.client.Endpoints()[0])
		require.NoError(t, err)
		_, err = etcdserverpb.NewMaintenanceClient(l.client.ActiveConnection()).Alarm(t.Context(),
			&etcdserverpb.AlarmRequest{Action: action, MemberID: resp.Header.MemberId, Alarm: etcdserverpb.AlarmType_NOSPACE})
		require.NoError(t, err)
	}
	alarm(etcdserverpb.AlarmRequest_ACTIVATE)
	_, err := l.a.try(t.Context(), nil)
	require.ErrorContains(t, err, "etcd is full: etcdctl compact REVISION, etcdctl defrag, and then etcdctl alarm disarm")
	_, err = l.a.table.Read(t.Context(), l.a.query())
	require.NoError(t, err)
	alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
	require.Equal(t, l.before.Server, l.a.sync(t, nil).Server)
	l.requireWorks(l.a, l.before.Server)
}

// A table forgets the lives that are over, also if etcd takes no write in between, so a process that
// loses its lease again and again does not grow.
func TestA5_FormerLivesAreForgotten(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	table, left := l.table(), []uint64(nil)
	for id := range uint64(20) {
		m := newMember(table, 100+id)
		ctx, cancel := context.WithCancel(t.Context())
		_, err := table.Read(ctx, replica.Query{Self: m.self.ID})
		require.NoError(t, err)
		if id%2 == 0 {
			cancel() // the first Sync fails
		}
		m.last.Server = l.before.Server
		_, err = m.try(ctx, func(u *replica.Update) { u.Left = left })
		require.Equal(t, id%2 == 0, err != nil, err)
		cancel()
		left = append(left, m.self.ID)
	}
	require.Equal(t, 1, table.Lives())
	last := newMember(table, 200)
	last.sync(t, func(u *replica.Update) { u.Left = append(left, 200) })
	require.Zero(t, table.Lives(), "it has left")
}

// Wait returns for what concerns a member, and for nothing else.
func TestWait(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	other := newMember(l.table(), 3)
	other.sync(t, nil)
	for _, test := range []struct {
		name             string
		do               func()
		leader, concerns bool // whether it wakes the leader, and the member that it is about
	}{
		{"heartbeat", func() { l.b.sync(t, nil) }, false, false},
		{"report", func() { l.b.sync(t, func(u *replica.Update) { u.Report = &replica.Report{Applied: 3} }) }, false, false},
		{"order", func() { l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: "t"}}}) }, false, true},
		{"order of another", func() { l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 3, Task: "t"}}}) }, false, false},
		{"a member drains", func() { other.self.Draining = true; other.sync(t, nil) }, true, false},
		{"an ask", func() {
			other.sync(t, func(u *replica.Update) { u.Asks = []replica.Ask{{Verb: "restart", Target: "t"}} })
		}, true, true},
		{"a member leaves", func() { other.sync(t, func(u *replica.Update) { u.Left = []uint64{3} }) }, true, false},
		{"the leader drains", func() { l.a.self.Draining = true; l.a.sync(t, nil) }, true, true},
		{"an election", func() { l.b.sync(t, func(u *replica.Update) { u.Campaign = l.a.last.Epoch + 1<<34 }) }, true, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var both sync.WaitGroup
			wakes := func(m *member, want bool) {
				v, err := m.table.Read(t.Context(), replica.Query{Self: m.self.ID})
				require.NoError(t, err)
				patience := time.Minute
				if !want {
					patience = 50 * time.Millisecond
				}
				both.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					err := m.table.Wait(ctx, replica.Query{Self: m.self.ID, Server: v.Server, Since: v.Revision})
					if (err == nil) != want {
						t.Errorf("member %d: Wait returned %v", m.self.ID, err)
					}
				})
			}
			wakes(l.a, test.leader)
			wakes(l.b, test.concerns)
			test.do()
			both.Wait()
		})
	}
}

// A watch that is cut loses nothing: the client resumes it, or Wait says that it cannot tell.
func TestE6_WatchCut(t *testing.T) {
	s := startServer(t, embed.Config{})
	p, err := netfault.New(strings.TrimPrefix(s.Endpoint(), "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	l := newLoss(t, clientOf(t, s))
	far := dial(t, clientv3.Config{
		Endpoints: []string{"http://" + p.Addr()}, Logger: zap.NewNop(), DialKeepAliveTime: 200 * time.Millisecond, DialKeepAliveTimeout: 200 * time.Millisecond,
	})
	b := newMember(etcd.New(far, l.prefix), 2)
	b.self = l.b.self
	for name, cut := range map[string]func(){
		"reset":  func() { p.Reset() },
		"silent": func() { p.Cut(netfault.Both) },
		"down":   func() { p.Cut(netfault.Down) },
	} {
		t.Run(name, func(t *testing.T) {
			v, err := b.table.Read(t.Context(), b.query())
			require.NoError(t, err)
			waits := make(chan error, 1)
			go func() {
				waits <- b.table.Wait(t.Context(), replica.Query{Self: 2, Server: v.Server, Since: v.Revision})
			}()
			cut()
			l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: name}}})
			p.Heal()
			if err := <-waits; err != nil {
				t.Log("Wait cannot tell:", err)
			}
			q := b.query()
			q.Server, q.Since = v.Server, v.Revision
			v, err = b.table.Read(t.Context(), q)
			require.NoError(t, err)
			require.Len(t, ordersFor(v, name), 1)
		})
	}
}

// Each call connects anew, whatever pause the client makes between two attempts.
func TestB5_ConnectsAtOnce(t *testing.T) {
	r := newRestarting(t, embed.Config{Dir: filepath.Join(t.TempDir(), "data")})
	pause := backoff.Config{BaseDelay: time.Hour, Multiplier: 1, MaxDelay: time.Hour}
	m := newMember(etcd.New(dial(t, clientv3.Config{
		Endpoints: []string{r.server.Endpoint()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{Backoff: pause})},
	}), unique()), 1)
	m.sync(t, nil)
	r.stop()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := m.try(ctx, nil)
	require.Error(t, err)
	r.start()
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err = m.try(ctx, nil)
	require.NoError(t, err)
}

// A batch of the largest size is written in transactions that etcd takes by default.
func TestO4_LargeBatches(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	long := strings.Repeat("ü", 500)
	all := make(map[string]bool)
	for round := range 2 { // the second one replaces all
		b := &replica.Batch{Listed: true}
		for i := range replica.MaxBatch / 2 {
			name := fmt.Sprint(long, i)
			all[name] = true
			b.Tasks = append(b.Tasks, replica.Task{Name: name, Input: int64(round)})
			b.Orders = append(b.Orders, replica.Order{Member: uint64(1 + i%100), Task: name, Input: int64(round)})
		}
		v := l.a.write(t, b)
		require.Equal(t, l.before.Server, v.Server)
		require.Len(t, v.Tasks, 2+len(all))
		require.Len(t, v.Orders, 3+len(all))
		for _, o := range v.Orders {
			if all[o.Task] {
				require.Equal(t, replica.Order{Member: o.Member, Task: o.Task, Version: l.a.batch, Input: int64(round)}, o)
			}
		}
	}
	b := &replica.Batch{}
	labels := make([]string, orchestrator.MaxLabels)
	for i := range labels {
		labels[i] = fmt.Sprint(strings.Repeat("l", 160), i)
	}
	for i := range 80 { // their keys are large: etcd gets four bytes for each of the name
		b.Tasks = append(b.Tasks, replica.Task{Name: fmt.Sprint(strings.Repeat("\x01", 1020), i), Requires: labels})
	}
	require.Len(t, l.a.write(t, b).Tasks, 2+len(all)+len(b.Tasks))
	b = &replica.Batch{Evict: make(map[uint64]uint64)}
	for i := range 300 { // each is five operations
		b.Evict[uint64(1000+i)] = 0
	}
	require.Len(t, l.a.write(t, b).Gone, 301)
	left := make([]uint64, 64)
	for i := range left {
		left[i] = uint64(2000 + i)
	}
	l.a.sync(t, func(u *replica.Update) { u.Left = left })
	require.Len(t, l.a.last.Gone, 301+64)
	l.requireWorks(l.b, l.before.Server)
}

// An order above etcd's limit is refused, with the key and what to do, and nothing of its batch is
// written.
func TestBadInput_OrderAboveTheLimit(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	long := strings.Repeat("x", 1000)
	fill := func(from, to int) *replica.Batch {
		b := &replica.Batch{}
		for i := from; i < to; i++ {
			b.Orders = append(b.Orders, replica.Order{Member: 2, Task: fmt.Sprint(long, i)})
		}
		return b
	}
	l.a.write(t, fill(0, 900))
	b := fill(900, 1100)
	b.Tasks = []replica.Task{{Name: "with it"}}
	_, err := l.a.tryWrite(t, b)
	require.ErrorIs(t, err, orchestrator.ErrRejected)
	require.ErrorContains(t, err, "the value of "+l.prefix+"orders/2 has ")
	require.ErrorContains(t, err, "and etcd takes 1048576: run fewer tasks on each replica, or give them shorter names")
	require.NotContains(t, err.Error(), "\n")
	v := l.a.sync(t, nil)
	require.Len(t, v.Tasks, 2)
	require.Len(t, v.Orders, 903)
	require.Len(t, l.a.write(t, fill(900, 902)).Orders, 905, "the next batch is written")
}

// Calls make as few requests as the documentation says, whatever the number of members and tasks.
func TestCosts(t *testing.T) {
	s := startServer(t, embed.Config{})
	var requests, bytes int
	count := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		requests, bytes = requests+1, bytes+len(fmt.Sprint(reply))
		return err
	}
	l := newLoss(t, dial(t, clientv3.Config{
		Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(count)},
	}))
	for i := range 50 {
		newMember(l.table(), uint64(100+i)).sync(t, nil)
	}
	l.a.sync(t, nil)
	many := &replica.Batch{}
	for i := range 500 {
		many.Orders = append(many.Orders, replica.Order{Member: 2, Task: fmt.Sprint("task", i)})
	}
	l.a.write(t, many)
	heartbeat := func(change func(*replica.Update)) func() {
		return func() {
			l.b.sync(t, func(u *replica.Update) {
				u.Since, u.Beats, u.Follow = l.b.last.Revision, false, false
				if change != nil {
					change(u)
				}
			})
		}
	}
	for _, test := range []struct {
		name    string
		call    func()
		want    int
		isShort bool
	}{
		{"a Read", func() { _, _ = l.a.table.Read(t.Context(), l.a.query()) }, 1, false},
		{"a heartbeat after an order, which the last call has not read", heartbeat(nil), 3, false},
		{"a heartbeat", heartbeat(nil), 1, true},
		{"a report", heartbeat(func(u *replica.Update) { u.Report = &replica.Report{} }), 1, true},
		{"a heartbeat after a report", heartbeat(nil), 1, true},
		{"a batch", func() {
			l.a.write(t, &replica.Batch{Tasks: []replica.Task{{Name: "n"}}, Orders: []replica.Order{{Member: 1, Task: "n"}, {Member: 2, Task: "n"}}})
		}, 2, false},
		{"an election", func() { l.b.sync(t, func(u *replica.Update) { u.Campaign = l.a.last.Epoch + 1<<33 }) }, 2, false},
	} {
		requests, bytes = 0, 0
		test.call()
		require.Equal(t, test.want, requests, test.name)
		if test.isShort {
			require.Less(t, bytes, 4000, "%s does not read the orders of the caller", test.name)
		}
	}
}

// A leader that is deposed between two transactions of a batch writes nothing more, and the next
// leader finds what was written.
func TestO4_DeposedWithinABatch(t *testing.T) {
	s := startServer(t, embed.Config{})
	l := newLoss(t, clientOf(t, s))
	b := &replica.Batch{}
	for i := range 500 {
		b.Tasks = append(b.Tasks, replica.Task{Name: fmt.Sprint("t", i)})
		b.Orders = append(b.Orders, replica.Order{Member: uint64(1 + i%300), Task: fmt.Sprint("t", i)})
	}
	var both sync.WaitGroup
	both.Go(func() { l.a.write(t, b) })
	both.Go(func() {
		for range 200 {
			v, err := l.b.try(t.Context(), func(u *replica.Update) { u.Campaign = u.Epoch + 1<<33 })
			if err != nil || v.Leader == 2 {
				return
			}
		}
	})
	both.Wait()
	require.Equal(t, uint64(2), l.b.last.Leader)
	v := l.b.sync(t, nil)
	require.Equal(t, l.before.Server, v.Server)
	l.a.write(t, &replica.Batch{Orders: []replica.Order{{Member: 2, Task: "late"}}})
	require.Empty(t, ordersFor(l.b.sync(t, nil), "late"))
}

// A user's own transaction takes effect while the leader leads, and not afterwards.
func TestGuard(t *testing.T) {
	l := newLoss(t, clientOf(t, startServer(t, embed.Config{})))
	write := func(epoch uint64) bool {
		resp, err := l.client.Txn(t.Context()).If(l.a.table.Guard(epoch)).Then(clientv3.OpPut("/mine", "")).Commit()
		require.NoError(t, err)
		return resp.Succeeded
	}
	epoch := l.a.last.Epoch
	require.True(t, write(epoch))
	require.False(t, write(epoch+1))
	l.a.write(t, &replica.Batch{Tasks: []replica.Task{{Name: "new"}}})
	require.True(t, write(epoch))
	l.b.sync(t, func(u *replica.Update) { u.Campaign = epoch + 1<<33 })
	require.False(t, write(epoch))
	require.True(t, write(epoch+1<<33))
	l.delete("table")
	l.b.sync(t, nil)
	require.False(t, write(epoch+1<<33), "with the Server ends the epoch")
}
