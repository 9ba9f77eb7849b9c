//go:build !race

package manager

// R5: a manager in a separate process, and a worker with a valid certificate that
// sends the manager as much as it can. The race detector
// takes several times the memory that this test measures.

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/testca"
)

// part is the environment variable with the role, the files and the address of a
// process of this test.
const part = "ORCHESTRATOR_TEST_FLOOD"

var floodLasts = flag.Duration("flood.lasts", 2*time.Second, "`how long` the flood of TestR5_AFloodTakesLittleMemory lasts")

// TestR5_PartOfTheFlood is the main function of the other processes: the manager,
// which prints its address and ends with its standard input, and the attacker.
func TestR5_PartOfTheFlood(t *testing.T) {
	said := strings.Split(os.Getenv(part), "\n")
	if len(said) < 5 {
		t.Skip("runs as a process of other tests only")
	}
	files := testca.Files{Cert: said[0], Key: said[1], CA: said[2]}
	own := with(t, files)
	switch kind, address := said[4], said[3]; {
	case address != "" && kind == "":
		attack(t, address, own)
		return
	case address != "":
		attackAs(t, kind, address, files)
		return
	}
	m, address := manage(t, own)
	tasks, err := strconv.Atoi(said[4])
	require.NoError(t, err)
	for i := range tasks {
		_, err := m.Put(t.Context(), Item{Name: fmt.Sprint("task", i)})
		require.NoError(t, err)
	}
	_, err = fmt.Fprintln(os.Stdout, address)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// partOf returns another process of the test, not started yet: a manager with so many
// tasks, or an attacker of a kind if there is an address.
func partOf(t *testing.T, files testca.Files, address, kind string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), os.Args[0], "-test.run=^TestR5_PartOfTheFlood$", "-flood.lasts="+floodLasts.String())
	cmd.Env = append(os.Environ(), part+"="+strings.Join([]string{files.Cert, files.Key, files.CA, address, kind}, "\n"))
	return cmd
}

// attack sends as much as possible over more connections than it gets.
func attack(t *testing.T, address string, own communicator.Option) {
	t.Helper()
	const connections = 150
	flood, stop := context.WithTimeout(t.Context(), *floodLasts)
	defer stop()
	var attackers sync.WaitGroup
	for range connections {
		conn := connect(t, address, aManager, own)
		for range maxCalls {
			attackers.Go(func() {
				request := raw(grpctest.EmptyCompletions("mallory", maxRequest))
				for flood.Err() == nil {
					_ = conn.Invoke(flood, orchestratorv1.Manager_Complete_FullMethodName, request, nil, grpc.ForceCodecV2(rawCodec{}))
				}
			})
		}
	}
	attackers.Wait()
}

// raw is an encoded request.
type raw []byte

// rawCodec sends encoded requests unchanged, and ignores answers.
type rawCodec struct{ wire.ResponseCodec }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	r, ok := v.(raw)
	if !ok {
		return nil, fmt.Errorf("%T is not an encoded request", v)
	}
	return mem.BufferSlice{mem.SliceBuffer(r)}, nil
}

func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }

// residentMemory returns the resident memory of a process in bytes.
func residentMemory(t *testing.T, pid int) (bytes uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skip("no /proc on this system")
	}
	_, after, ok := strings.Cut(string(text), "VmRSS:")
	require.True(t, ok)
	_, err = fmt.Sscanf(after, "%d", &bytes)
	require.NoError(t, err)
	return bytes << 10
}

// startManager starts a manager that expects tasks, until the test ends.
func startManager(t *testing.T, ca *testca.CA, tasks int) (manager *exec.Cmd, address string) {
	t.Helper()
	manager = pinned(partOf(t, ca.Manager(t), "", strconv.Itoa(tasks)), 0)
	in, err := manager.StdinPipe()
	require.NoError(t, err)
	out, err := manager.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, manager.Start())
	t.Cleanup(func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		require.NoError(t, manager.Wait())
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	return manager, strings.TrimSpace(address)
}

func TestR5_AFloodTakesLittleMemory(t *testing.T) {
	const most = 300 << 20
	ca := testca.New(t, "ours")
	manager, address := startManager(t, ca, 0)
	good := with(t, ca.Worker(t, "w1"))
	site := serveWorker(t, good)
	conn := connect(t, address, aManager, good)
	w1 := orchestratorv1.NewManagerClient(conn)
	_, err := w1.Register(t.Context(), registering("w1", site.Incarnation(), site.addr), grpc.WaitForReady(true))
	require.NoError(t, err)
	before := residentMemory(t, manager.Process.Pid)

	attacker := partOf(t, ca.Worker(t, "mallory"), address, "")
	require.NoError(t, attacker.Start())
	over := make(chan error, 1)
	go func() { over <- attacker.Wait() }()
	// A call of a method that does not exist waits for the processor as a heartbeat does,
	// and for nothing in the manager. On a busy machine both may take seconds.
	call := func() time.Duration {
		began := time.Now()
		err := conn.Invoke(t.Context(), "/orchestrator.v1.Manager/Nothing", &orchestratorv1.LeaveRequest{}, &orchestratorv1.LeaveResponse{})
		assert.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
		return time.Since(began)
	}
	var beats, held []time.Duration // held is how much longer a heartbeat took than the other call
	var peak uint64
	for attacked := true; attacked; {
		other := make(chan time.Duration, 1)
		go func() { other <- call() }()
		began := time.Now()
		_, err := w1.Heartbeat(t.Context(), &orchestratorv1.HeartbeatRequest{Worker: []byte("w1"), Incarnation: site.Incarnation()})
		require.NoError(t, err)
		took := time.Since(began)
		beats = append(beats, took)
		held = append(held, took-<-other)
		peak = max(peak, residentMemory(t, manager.Process.Pid))
		select {
		case err := <-over:
			require.NoError(t, err)
			attacked = false
		case <-time.After(20 * time.Millisecond):
		}
	}
	slices.Sort(beats)
	slices.Sort(held)
	t.Logf("memory of the manager: %d MiB before, %d MiB at most; %d heartbeats, median %v, longest %v, held up for at most %v",
		before>>20, peak>>20, len(beats), beats[len(beats)/2], beats[len(beats)-1], held[len(held)-1])
	require.Less(t, peak, uint64(most))
	require.Less(t, beats[len(beats)/2], time.Second)
	require.Less(t, held[len(held)*19/20], time.Second)
}
