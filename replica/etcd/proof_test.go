package etcd_test

// Replicas of one process over a store that fails. No task ever runs twice, and after each fault
// everything runs again.

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/etcd"
	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

var rounds = flag.Int("proof.rounds", 1, "how often each fault happens")

// fleet is replicas that run tasks.
type fleet struct {
	t      *testing.T
	server *restarting
	client *clientv3.Client
	tasks  []string

	mu      sync.Mutex
	running map[string]int
	twice   []string
}

const lease = time.Second

// run runs the task in a replica.
func (f *fleet) run(ctx context.Context, task string) error {
	f.count(task, 1)
	defer f.count(task, -1)
	<-ctx.Done()
	return ctx.Err()
}

func (f *fleet) count(task string, by int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running[task] += by; f.running[task] > 1 {
		f.twice = append(f.twice, task)
	}
}

// start starts a replica. The function that it returns makes it leave.
func (f *fleet) start(name string) (leave func() error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(f.t.Context()))
	client := f.dial()
	quiet := slog.New(slog.DiscardHandler)
	ended := make(chan error, 1)
	go func() {
		ended <- replica.Run(ctx, etcd.New(client, "/p/", etcd.WithLogger(quiet)), replica.Names(f.tasks...), f.run,
			replica.WithName(name), replica.WithLastResort(func([]string) { f.t.Log("a task was stopped late") }), replica.WithLease(lease, 50*time.Millisecond), replica.WithDrain(10*lease), replica.WithLogger(quiet))
	}()
	return func() error {
		stop()
		return <-ended
	}
}

func (f *fleet) dial() *clientv3.Client {
	return dial(f.t, clientv3.Config{Endpoints: []string{f.server.server.Endpoint()}, Logger: zap.NewNop(), DialKeepAliveTime: lease, DialKeepAliveTimeout: lease})
}

// settles waits until every task runs once.
func (f *fleet) settles(what string) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := 0
		for _, running := range f.running {
			n += running
		}
		return n == len(f.tasks)
	}, time.Minute, time.Millisecond, what)
	f.mu.Lock()
	defer f.mu.Unlock()
	require.Empty(f.t, f.twice, what)
}

// keys returns the keys of the table, without the prefix.
func (f *fleet) keys() map[string]string {
	l := &loss{t: f.t, client: f.client, prefix: "/p/"}
	return l.keys()
}

func TestNever(t *testing.T) {
	t.Parallel() // it mostly waits
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // for tests
	dir := t.TempDir() + "/data"
	f := &fleet{t: t, server: newRestarting(t, embed.Config{Dir: dir}), running: make(map[string]int)}
	for i := range 30 {
		f.tasks = append(f.tasks, fmt.Sprint("t", i))
	}
	f.client = f.dial()
	leaves := make([]func() error, 4)
	for i := range leaves {
		leaves[i] = f.start(fmt.Sprint("r", i))
	}
	f.settles("at the start")
	l := &loss{t: t, client: f.client, prefix: "/p/"}
	one := func() string {
		keys := slices.Sorted(maps.Keys(f.keys()))
		return keys[random.IntN(len(keys))]
	}
	pause := func(most time.Duration) { <-time.After(time.Duration(random.Int64N(int64(most)))) }
	clean := func(prefix string) {
		_, err := f.client.Delete(t.Context(), "/p/"+prefix, clientv3.WithPrefix())
		require.NoError(t, err)
	}
	faults := map[string]func(){
		"a key is deleted":   func() { clean(one()) },
		"a key is edited":    func() { key := one(); l.put(key, f.keys()[key]+" ") },
		"a key is spoiled":   func() { l.put(one(), "spoiled") },
		"orders are deleted": func() { clean("orders/") },
		"all are deleted":    func() { clean("") },
		"the history is compacted": func() {
			resp, err := f.client.Get(t.Context(), "x")
			require.NoError(t, err)
			_, err = f.client.Compact(t.Context(), resp.Header.Revision)
			require.NoError(t, err)
		},
		"etcd is killed": func() { f.server.stop(); pause(2 * lease); f.server.start() },
		"etcd is set back": func() {
			f.server.stop()
			require.NoError(t, os.CopyFS(dir+".copy", os.DirFS(dir)))
			f.server.start()
			pause(2 * lease)
			f.server.stop()
			require.NoError(t, os.RemoveAll(dir))
			require.NoError(t, os.Rename(dir+".copy", dir))
			f.server.start()
		},
		"etcd is full": func() {
			alarm := func(action etcdserverpb.AlarmRequest_AlarmAction) {
				_, err := etcdserverpb.NewMaintenanceClient(f.client.ActiveConnection()).Alarm(t.Context(),
					&etcdserverpb.AlarmRequest{Action: action, Alarm: etcdserverpb.AlarmType_NOSPACE})
				require.NoError(t, err)
			}
			alarm(etcdserverpb.AlarmRequest_ACTIVATE)
			pause(2 * lease)
			alarm(etcdserverpb.AlarmRequest_DEACTIVATE)
		},
		"a replica leaves": func() {
			i := random.IntN(len(leaves))
			require.NoError(t, leaves[i]())
			leaves[i] = f.start(fmt.Sprint("r", i))
		},
	}
	for range *rounds {
		for _, name := range slices.Sorted(maps.Keys(faults)) {
			faults[name]()
			f.settles(name)
			pause(lease / 2)
			f.settles(name + ", later")
		}
	}
	var all sync.WaitGroup
	for i, leave := range leaves {
		all.Go(func() {
			if err := leave(); err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
		})
	}
	all.Wait()
	require.Empty(t, f.twice)
	for key := range f.keys() {
		require.False(t, strings.HasPrefix(key, "members/"), key)
	}
}
