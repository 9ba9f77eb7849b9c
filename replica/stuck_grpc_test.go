package replica_test

// Never stuck, over gRPC on loopback: addresses that lead nowhere, to a firewall or to a
// server that hangs, and certificates that are not accepted. In real time: these tests
// report how many leases it took, and allow any number.

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/testca"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// lab is a set of replicas that share twelve tasks over gRPC.
type lab struct {
	*testing.T
	name    string
	began   time.Time
	table   *memory.Table
	journal *journal
	source  replica.Source
	log     safeBuffer
	ended   map[string]chan error
	stop    map[string]context.CancelFunc
}

const labLease = 2 * time.Second

func newLab(t *testing.T, name string) *lab {
	names := make([]string, 12)
	for i := range names {
		names[i] = fmt.Sprintf("task-%02d", i)
	}
	l := &lab{
		T: t, name: name, began: time.Now(), table: memory.New(), source: replica.Names(names...),
		journal: &journal{running: make(map[string][]string)},
		ended:   make(map[string]chan error), stop: make(map[string]context.CancelFunc),
	}
	t.Cleanup(func() {
		for name := range l.stop {
			if err := l.end(name); err != nil && !errors.Is(err, replica.ErrUndrained) {
				t.Errorf("%s: %v", name, err)
			}
		}
		require.Empty(t, l.journal.twice)
		require.Empty(t, l.journal.counts())
		if t.Failed() {
			t.Log(name, l.journal.counts(), l.log.String())
		}
	})
	return l
}

// start starts a replica.
func (l *lab) start(name string, opts ...replica.Option) {
	l.Helper()
	l.startWith(name, l.journal.work(name), opts...)
}

func (l *lab) startWith(name string, work func(context.Context, string) error, opts ...replica.Option) {
	l.Helper()
	r, err := replica.New(l.table, l.source, work, append([]replica.Option{
		replica.WithName(name), replica.WithLease(labLease, 500*time.Millisecond), replica.WithInterval(100 * time.Millisecond),
		replica.WithLastResort(func(tasks []string) { l.Errorf("%s: last resort: %v", name, tasks) }),
		replica.WithDrain(time.Second), replica.WithLogger(slog.New(slog.NewTextHandler(&l.log, nil))),
	}, opts...)...)
	require.NoError(l, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	l.stop[name], l.ended[name] = stop, ended
	go func() { ended <- r.Run(ctx) }()
}

// end stops a replica, and returns the result of Run.
func (l *lab) end(name string) error {
	l.stop[name]()
	delete(l.stop, name)
	return <-l.ended[name]
}

// runs waits until the replicas run so many tasks each.
func (l *lab) runs(what string, want map[string]int) {
	l.Helper()
	require.Eventually(l, func() bool { return maps.Equal(l.journal.counts(), want) }, 2*time.Minute, 20*time.Millisecond,
		"%s: %s: want %v", l.name, what, want)
	l.Logf("%s: %s: after %.1f leases at most", l.name, what, time.Since(l.began).Seconds()/labLease.Seconds())
}

// logs waits until one line of the log has all the given texts.
func (l *lab) logs(texts ...string) {
	l.Helper()
	require.Eventually(l, func() bool {
		for line := range strings.Lines(l.log.String()) {
			all := true
			for _, text := range texts {
				all = all && strings.Contains(line, text)
			}
			if all {
				return true
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond, "%s: no line with %q", l.name, texts)
}

// addresses returns addresses at which nothing can be called.
func addresses(t *testing.T) map[string]string {
	refusing, err := netfault.New("127.0.0.1:1")
	require.NoError(t, err)
	refusing.Refuse()
	t.Cleanup(func() { _ = refusing.Close() })
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = hung.Close() })
	go func() {
		for {
			c, err := hung.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(io.Discard, c); _ = c.Close() }() // it reads, and never answers
		}
	}()
	all := map[string]string{"wrong address": refusing.Addr(), "hung server": hung.Addr().String()}
	if address := firewalled(t); address != "" {
		all["firewalled port"] = address
	}
	return all
}

func TestNeverStuck_OverGRPC_AtTheElection(t *testing.T) {
	t.Parallel()
	var labs []*lab
	for name, address := range addresses(t) {
		l := newLab(t, name)
		l.start("x", replica.WithWorkerOnly(), replica.WithAdvertise(address))
		l.start("a")
		l.start("b")
		labs = append(labs, l)
	}
	for _, l := range labs {
		l.runs("the others run everything", map[string]int{"a": 6, "b": 6})
		l.logs("WARN", "a replica cannot be called and is retired: check its address, the firewall and the certificates", "name=x", "err=")
		l.logs("WARN", "no leader can call this replica", "replica=x")
	}
}

func TestNeverStuck_OverGRPC_Joins(t *testing.T) {
	t.Parallel()
	labs := make(map[*lab]string)
	for name, address := range addresses(t) {
		l := newLab(t, name)
		l.start("a")
		l.start("b")
		labs[l] = address
	}
	for l, address := range labs {
		l.runs("a new table", map[string]int{"a": 6, "b": 6})
		l.start("x", replica.WithWorkerOnly(), replica.WithAdvertise(address))
		require.NoError(t, l.end("b"))
	}
	for l := range labs {
		l.runs("a runs everything", map[string]int{"a": 12})
		l.logs("WARN", "no leader can call this replica", "replica=x")
	}
}

// proxied is the network of a replica that is called through a proxy.
type proxied struct {
	replica.Network
	proxy atomic.Pointer[netfault.Proxy]
}

func (p *proxied) Serve(ctx context.Context, w *worker.Worker[string]) (string, <-chan error, error) {
	address, served, err := p.Network.Serve(ctx, w)
	if err != nil {
		return "", nil, err
	}
	proxy, err := netfault.New(address)
	if err != nil {
		return "", nil, err
	}
	p.proxy.Store(proxy)
	context.AfterFunc(ctx, func() { _ = proxy.Close() })
	return proxy.Addr(), served, nil
}

func TestNeverStuck_OverGRPC_DuringAnAdd(t *testing.T) {
	t.Parallel()
	labs := make(map[*lab]func(*netfault.Proxy))
	for name, fault := range map[string]func(*netfault.Proxy){
		"wrong address":   (*netfault.Proxy).Refuse,
		"hung server":     func(p *netfault.Proxy) { p.Cut(netfault.Down) },
		"firewalled port": func(p *netfault.Proxy) { p.Cut(netfault.Both) },
	} {
		l := newLab(t, name)
		l.start("a")
		l.start("b")
		labs[l] = fault
	}
	for l, fault := range labs {
		l.runs("a new table", map[string]int{"a": 6, "b": 6})
		n, err := replica.NewNetwork()
		require.NoError(t, err)
		network := &proxied{Network: n}
		run := l.journal.work("x")
		l.startWith("x", func(ctx context.Context, task string) error {
			fault(network.proxy.Load()) // before the answer to the start
			return run(ctx, task)
		}, replica.WithWorkerOnly(), replica.WithNetwork(network))
	}
	for l := range labs {
		l.logs("WARN", "a replica cannot be called and is retired", "name=x")
		l.runs("the others run everything", map[string]int{"a": 6, "b": 6})
	}
}

func TestTLS_ReplicasShareOneCertificate(t *testing.T) {
	t.Parallel()
	const service = "spiffe://example.org/ns/shop/sa/pollers"
	var labs []*lab
	for name, test := range map[string]struct{ uris, identities []string }{
		"any certificate of the authority": {nil, nil},
		"one identity of several":          {[]string{"https://example.org", service}, []string{"spiffe://example.org/other", service}},
	} {
		l := newLab(t, name)
		files := testca.New(t, "ours").Issue(t, test.uris)
		c, err := replica.LoadCredentials(files.Cert, files.Key, files.CA, test.identities...)
		require.NoError(t, err)
		for _, name := range []string{"a", "b", "c"} {
			l.start(name, replica.WithCredentials(c), replica.WithListen("127.0.0.1:0"))
		}
		labs = append(labs, l)
	}
	for _, l := range labs {
		l.runs("they share the tasks", map[string]int{"a": 4, "b": 4, "c": 4})
	}
}

func TestTLS_TheCertificateMustHaveAnIdentity(t *testing.T) {
	files := testca.New(t, "ours").Issue(t, []string{"spiffe://example.org/intruder"})
	_, err := replica.LoadCredentials(files.Cert, files.Key, files.CA, "spiffe://example.org/pollers")
	require.ErrorIs(t, err, grpc.ErrCertificate)
	require.ErrorContains(t, err, `the identities of a replica are ["spiffe://example.org/pollers"]`)
}

// A replica that only serves could not lead, and no other could call one that only calls.
func TestTLS_TheCertificateMustBeForServersAndClients(t *testing.T) {
	ours := testca.New(t, "ours")
	for usage, want := range map[x509.ExtKeyUsage]string{
		x509.ExtKeyUsageServerAuth: "is not for clients: its extended key usage has no clientAuth",
		x509.ExtKeyUsageClientAuth: "is not for servers: its extended key usage has no serverAuth",
	} {
		files := ours.Issue(t, nil, testca.Usage(usage))
		_, err := replica.LoadCredentials(files.Cert, files.Key, files.CA)
		require.ErrorIs(t, err, grpc.ErrCertificate)
		require.ErrorContains(t, err, want)
	}
}

// A replica whose certificate the others do not accept can neither lead them nor hold them
// up.
func TestTLS_ACertificateThatOthersDoNotAccept(t *testing.T) {
	t.Parallel()
	const service = "spiffe://example.org/pollers"
	ours := testca.New(t, "ours")
	credentials := func(ca *testca.CA, identity string) replica.Option {
		files := ca.Issue(t, []string{identity})
		c, err := replica.LoadCredentials(files.Cert, files.Key, files.CA, identity)
		require.NoError(t, err)
		return replica.WithCredentials(c)
	}
	labs := make(map[*lab]string)
	for name, test := range map[string]struct {
		credentials replica.Option
		err         string
	}{
		"of another authority": {credentials(testca.New(t, "theirs"), service), "not by an accepted authority"},
		"of another service":   {credentials(ours, "spiffe://example.org/intruder"), "certificate not accepted"},
		"plaintext":            {replica.WithPlaintext(), "does not use TLS"},
	} {
		l := newLab(t, name)
		loopback, mine := replica.WithListen("127.0.0.1:0"), credentials(ours, service)
		l.start("x", test.credentials, loopback)
		l.start("a", mine, loopback)
		l.start("b", mine, loopback)
		l.start("c", mine, loopback)
		labs[l] = test.err
	}
	for l, err := range labs {
		l.runs("the others run everything", map[string]int{"a": 4, "b": 4, "c": 4})
		l.logs("WARN", "a replica cannot be called and is retired: check its address, the firewall and the certificates", "name=x", err)
		l.logs("WARN", "no leader can call this replica", "replica=x")
	}
}
