package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	managed "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/worker"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"
)

// The worker processes that join and are killed.

// guest is at most one worker process.
type guest struct {
	lease  time.Duration
	ledger *ledger
	fail   func(error)

	spec   guestSpec
	cmd    *exec.Cmd      // nil: no process
	stdin  io.WriteCloser // the process exits when it is closed
	ended  chan struct{}
	killed chan struct{} // closed before the process is killed

	mu      sync.Mutex
	renewed time.Time // the last answered renewal of the lease
}

// guestSpec is the configuration of a worker process.
type guestSpec struct {
	Name    string
	Lease   time.Duration
	Manager string   // the address of the manager, over gRPC
	Etcd    []string // the endpoints, on etcd
}

// guestEnv makes this program a worker process. It holds a guestSpec as JSON.
const guestEnv = "ORCHESTRATOR_BENCH_WORKER"

// A worker process reports lines on its standard output: the time in nanoseconds,
// the kind and, if any, the task.
const (
	saysJoin    = "join"
	saysRenewed = "renewed"
	saysStart   = "start"
	saysStop    = "stop"
)

// join starts a process, and returns when it began to join.
func (g *guest) join(ctx context.Context, spec guestSpec) (time.Time, error) {
	spec.Lease = g.lease
	text, err := json.Marshal(spec)
	if err != nil {
		return time.Time{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return time.Time{}, err
	}
	var stderr bytes.Buffer
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), guestEnv+"="+string(text))
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return time.Time{}, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return time.Time{}, err
	}
	if err := cmd.Start(); err != nil {
		return time.Time{}, err
	}
	g.spec, g.cmd, g.stdin = spec, cmd, stdin
	g.ended, g.killed = make(chan struct{}), make(chan struct{})
	joined := make(chan time.Time, 1)
	go func() {
		defer close(g.ended)
		err := g.follow(stdout, joined)
		err = errors.Join(err, cmd.Wait())
		select {
		case <-g.killed:
		default:
			g.fail(fmt.Errorf("worker process %s: %w: %s", spec.Name, err, stderr.Bytes()))
		}
	}()
	select {
	case at := <-joined:
		return at, nil
	case <-ctx.Done():
		return time.Time{}, context.Cause(ctx)
	}
}

// follow records the reports of the process until it ends.
func (g *guest) follow(stdout io.Reader, joined chan<- time.Time) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		nanos, said, _ := strings.Cut(lines.Text(), " ")
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return fmt.Errorf("bad report %q: %w", lines.Text(), err)
		}
		at := time.Unix(0, n)
		switch kind, task, _ := strings.Cut(said, " "); kind {
		case saysJoin:
			joined <- at
		case saysRenewed:
			g.mu.Lock()
			g.renewed = at
			g.mu.Unlock()
		case saysStart:
			if err := g.ledger.startAt(at, task, g.spec.Name); err != nil {
				g.fail(err)
			}
		case saysStop:
			g.ledger.stop(task, g.spec.Name)
		}
	}
	return lines.Err()
}

// kill sends SIGKILL, waits until the process has ended, and returns when its lease
// was last renewed.
func (g *guest) kill() (time.Time, error) {
	close(g.killed)
	err := g.cmd.Process.Kill()
	<-g.ended
	g.cmd = nil
	g.ledger.killed(g.spec.Name)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.renewed, errors.Join(err, ignoreClosed(g.stdin.Close()))
}

// ignoreClosed returns nil if Wait has already closed the pipe.
func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// close kills the process, if any.
func (g *guest) close() error {
	if g.cmd == nil {
		return nil
	}
	_, err := g.kill()
	return err
}

// guestMain is the main function of a worker process. In any other process it
// returns immediately.
func guestMain() {
	text, ok := os.LookupEnv(guestEnv)
	if !ok {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // the benchmark has ended
	}()
	var spec guestSpec
	err := json.Unmarshal([]byte(text), &spec)
	if err == nil {
		err = spec.run(context.Background())
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// reporter writes the lines of a worker process.
type reporter struct{ mu sync.Mutex }

func (r *reporter) say(kind, task string) {
	now := time.Now().UnixNano()
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Printf("%d %s %s\n", now, kind, task)
}

// run runs a worker until the process is killed.
func (spec guestSpec) run(ctx context.Context) error {
	var r reporter
	w, err := worker.New(func(ctx context.Context, task string) error {
		r.say(saysStart, task)
		defer r.say(saysStop, task)
		<-ctx.Done()
		return context.Cause(ctx)
	}, worker.WithLease(spec.Lease, spec.Lease/5))
	if err != nil {
		return err
	}
	if spec.Manager != "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		member, err := managed.NewMember(spec.Manager, spec.Name, w)
		if err != nil {
			return err
		}
		r.say(saysJoin, "")
		return member.Run(ctx, l)
	}
	clientConfig := etcd.ClientConfig(spec.Etcd...)
	clientConfig.DialOptions = append(clientConfig.DialOptions, grpc.WithStatsHandler(renewals{&r}))
	client, err := clientv3.New(clientConfig)
	if err != nil {
		return err
	}
	member, err := etcd.NewMember(client, spec.Name, w)
	if err != nil {
		return err
	}
	r.say(saysJoin, "")
	return member.Run(ctx)
}

// renewals reports each answer about a lease. It is a stats.Handler.
type renewals struct{ *reporter }

var _ stats.Handler = renewals{}

// TagRPC stores the method in the context for HandleRPC.
func (r renewals) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, methodKey{}, info.FullMethodName)
}

// HandleRPC reports an answer.
func (r renewals) HandleRPC(ctx context.Context, s stats.RPCStats) {
	_, answer := s.(*stats.InPayload)
	if method, _ := ctx.Value(methodKey{}).(string); answer && strings.HasPrefix(method, leaseMethods) {
		r.say(saysRenewed, "")
	}
}

// TagConn does nothing.
func (r renewals) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (r renewals) HandleConn(context.Context, stats.ConnStats) {}
