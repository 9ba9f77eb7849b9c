package kubernetes_test

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/kubetest"
	"github.com/f8949c05/orchestrator/replica/kubernetes"
)

// A fleet joins, leaves and loses replicas.
func TestFleet(t *testing.T) {
	t.Parallel() // it waits for leases
	testFleet(t, kubernetes.Config{URL: newFake(t).URL, Namespace: "test"}, 100)
}

func testFleet(t *testing.T, c kubernetes.Config, tasks int) {
	f := newFleet(t, c, tasks)
	a := f.start("a")
	f.await("cold start", 2*lease, a)
	b := f.start("b")
	f.await("b joins", lease, a, b)
	d := f.start("c")
	f.await("c joins", lease, a, b, d)
	starts := f.started()
	f.leave(b)
	f.await("b has left", lease, a, d)
	require.LessOrEqual(t, f.started()-starts, tasks/2, "starts when b left")
	f.leave(a) // it leads
	f.await("the leader has left", lease, d)
	e := f.start("e")
	f.await("e joins", lease, d, e)
	d.cut.Store(true)
	f.await("the leader is cut off", 3*lease, e)
}

// Leases are deleted and edited by hand. Nothing stops, starts or runs twice.
func TestFaults_ByHand(t *testing.T) {
	kubetest.Required(t)
	t.Parallel() // it waits for leases
	for _, of := range []struct {
		name  string
		match func(name string) bool
	}{
		{"the table", func(n string) bool { return !strings.Contains(strings.TrimPrefix(n, "fleet-"), "-") }},
		{"orders", func(n string) bool { return strings.HasSuffix(n, "-orders") }},
		{"tasks", func(n string) bool { return strings.Contains(n, "-tasks-") }},
		{"members", func(n string) bool {
			return strings.Count(n, "-") == 2 && !strings.HasSuffix(n, "-orders") && !strings.Contains(n, "-tasks")
		}},
		{"all", func(string) bool { return true }},
	} {
		t.Run(of.name, func(t *testing.T) {
			t.Parallel() // it has its own server
			s := newFake(t)
			f := newFleet(t, kubernetes.Config{URL: s.URL, Namespace: "test"}, 40)
			a, b, c := f.start("a"), f.start("b"), f.start("c")
			f.await("cold start", 3*lease, a, b, c)
			f.calm("before", time.Second)
			require.NotZero(t, s.edit(of.match, func(l map[string]any) {
				for key, value := range annotations(l) {
					annotations(l)[key] = strings.Replace(fmt.Sprint(value), "1", "2", 1)
				}
			}))
			f.calm("edited", lease*5/4)
			require.NotZero(t, s.drop(of.match))
			f.calm("deleted", lease*5/4)
			require.NotZero(t, s.edit(of.match, func(l map[string]any) { meta(l)["labels"] = map[string]any{} }))
			f.calm("labels deleted", lease)
			d := f.start("d")
			f.await("d joins", 3*lease, a, b, c, d)
		})
	}
}

// O9: the orders are deleted by hand and the leader is cut off at the same time. Nothing runs twice.
func TestO9_OrdersAndLeader(t *testing.T) {
	kubetest.Required(t)
	t.Parallel() // it waits for leases
	s := newFake(t)
	f := newFleet(t, kubernetes.Config{URL: s.URL, Namespace: "test"}, 40)
	nodes := []*node{f.start("a"), f.start("b"), f.start("c")}
	f.await("cold start", 3*lease, nodes...)
	for range 3 {
		leader := nodes[0]
		for _, n := range nodes {
			if n.Status().Leading {
				leader = n
			}
		}
		others := slices.DeleteFunc(slices.Clone(nodes), func(n *node) bool { return n == leader })
		leader.cut.Store(true)
		require.NotZero(t, s.drop(func(n string) bool { return strings.HasSuffix(n, "-orders") }))
		f.await("the leader is cut off", 4*lease, others...)
		leader.cut.Store(false)
		f.await("it is back", 2*lease, nodes...)
	}
}

// The requests of one replica after the other reach the API server late, by up to two seconds, while
// others join and leave. Nothing runs twice.
func TestFaults_Slow(t *testing.T) {
	kubetest.Required(t)
	t.Parallel() // it waits for leases
	s := newFake(t)
	f := newFleet(t, kubernetes.Config{URL: s.URL, Namespace: "test"}, 40)
	nodes := []*node{f.start("a"), f.start("b"), f.start("c")}
	f.await("cold start", 3*lease, nodes...)
	for i, slow := range nodes {
		s.setFault(func(_ string, r *http.Request) int {
			if r.Header.Get("Authorization") == "Bearer "+slow.name {
				select {
				case <-time.After(rand.N(2 * time.Second)):
				case <-r.Context().Done():
				}
			}
			return 0
		})
		end := time.Now().Add(lease)
		d := f.start(fmt.Sprint("d", i))
		f.wait(slow.name+" is slow", lease+time.Minute, func() bool { return time.Now().After(end) })
		d.stop()
		f.wait(d.name+" leaves", 2*lease, func() bool {
			select {
			case <-d.ended:
				return true
			default:
				return false
			}
		})
		s.setFault(nil)
		f.await("nothing is slow", 4*lease, nodes...)
	}
}

// What the API server answers for a while stops nothing.
func TestFaults_Answers(t *testing.T) {
	kubetest.Required(t)
	t.Parallel() // it waits for leases
	s := newFake(t)
	f := newFleet(t, kubernetes.Config{URL: s.URL, Namespace: "test"}, 40)
	a, b := f.start("a"), f.start("b")
	f.await("cold start", 3*lease, a, b)
	for _, code := range []int{401, 403, 409, 429, 500, 503, 504} {
		var n atomic.Int64
		s.setFault(func(string, *http.Request) int {
			if n.Add(1)%2 == 0 {
				return code
			}
			return 0
		})
		f.calm(http.StatusText(code)+" half of the time", 2*time.Second)
		s.setFault(func(string, *http.Request) int { return code })
		f.calm(http.StatusText(code), 2*time.Second)
		s.setFault(nil)
		for range 3 {
			s.cutWatches()
			f.calm("watches are cut", 300*time.Millisecond)
		}
	}
	c := f.start("c")
	f.await("c joins", lease, a, b, c)
}
