package e2e_test

// Workers in Python (examples/python), which were written from the proto files
// alone. go test does not notice changes of those files: run these tests with
// -count=1.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/internal/netfault"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// python returns the command that starts a worker, with code generated from the
// proto files.
func python(t *testing.T) (command []string) {
	t.Helper()
	proto, err := filepath.Abs("../proto")
	require.NoError(t, err)
	program, err := filepath.Abs("../../../examples/python/main.py")
	require.NoError(t, err)
	if _, err := os.Stat(program); errors.Is(err, os.ErrNotExist) {
		t.Skip("examples/python is not here: only the module is present")
	}
	// Debian's packages need Debian's Python, which may not be the first on the PATH.
	const interpreter = "/usr/bin/python3"
	plugin := proctest.Program(t, "protobuf-compiler-grpc", "grpc_python_plugin")
	protoc := proctest.Program(t, "protobuf-compiler", "protoc")
	if exec.Command(interpreter, "-c", "from grpc import server; from google.protobuf import message").Run() != nil {
		proctest.Missing(t, "python3-grpcio python3-protobuf")
	}
	if _, err := os.Stat("/usr/include/google/protobuf/duration.proto"); err != nil {
		proctest.Missing(t, "libprotobuf-dev")
	}
	generated := t.TempDir()
	output, err := exec.Command(protoc, "-I", proto, "--python_out="+generated, "--grpc_python_out="+generated,
		"--plugin=protoc-gen-grpc_python="+plugin, "orchestrator/v1/manager.proto", "orchestrator/v1/worker.proto").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return []string{"env", "PYTHONPATH=" + generated, "PYTHONDONTWRITEBYTECODE=1", interpreter, program, "--lifeline"}
}

// TestR1_WorkersInPython runs the life of a fleet: a restart of the manager, workers
// that are killed or cut off, tasks that complete in the meantime, content that
// changes, and a worker that leaves.
func TestR1_WorkersInPython(t *testing.T) {
	t.Parallel() // it mostly waits
	const tasks, jobs = 200, 60
	s := settings{Lease: 8 * time.Second, Stop: 500 * time.Millisecond, Interval: 100 * time.Millisecond}
	command := python(t)
	f := startFleetOf(t, 3, s, func(f *fleet, m *member, listen string) *proctest.Process {
		return f.StartCommand(m.name, append(slices.Clip(command),
			"--manager", m.up.Addr(), "--name", m.name, "--listen", listen, "--advertise", m.down.Addr(),
			"--lease", fmt.Sprint(s.Lease.Seconds()), "--stop", fmt.Sprint(s.Stop.Seconds()), "--journal", f.Path())...)
	})
	// A third of these names is more than a manager reads from a registering worker.
	long := names(strings.Repeat("long", 20), tasks)
	f.put(forever, long...)
	f.Wait("all tasks run", time.Minute, func() bool { return f.settled(tasks) })

	before := f.lasting()
	killed := proctest.Now()
	f.manager.Kill()
	f.Pass(s.Lease / 4)
	f.manager.Start()
	f.Await(leads, killed, time.Minute)
	for _, m := range f.workers {
		f.Wait("each registers with what it runs", time.Minute, func() bool {
			return strings.Contains(m.Output.Tail(), "registered with 6")
		})
	}
	require.True(t, f.settled(tasks))
	for _, r := range before {
		require.EqualValues(t, proctest.EndOfTime, r.To, "%s on %s was stopped\n%s", r.Task, r.Node, f.Logs())
	}

	its := f.of("w00")
	f.workers[0].Kill()
	f.Wait("its tasks run elsewhere", 6*s.Lease, func() bool { return f.elsewhere(its, "w00") })
	f.Restart()
	f.Wait("it has its part again", 6*s.Lease, func() bool { return f.settled(tasks) })

	its = f.of("w01")
	f.workers[1].up.Cut(netfault.Both)
	f.workers[1].down.Cut(netfault.Both)
	f.Wait("its tasks run elsewhere", 6*s.Lease, func() bool { return f.elsewhere(its, "w01") })
	f.workers[1].up.Heal()
	f.workers[1].down.Heal()
	f.Wait("it has its part again", 6*s.Lease, func() bool { return f.settled(tasks) })

	f.put("1s", names("job", jobs)...)
	f.Wait("the jobs run", time.Minute, func() bool { return len(f.Look()) == tasks+jobs })
	f.manager.Kill()
	f.Wait("the jobs are done", time.Minute, func() bool { return len(f.Look()) == tasks })
	f.manager.Start()
	f.Wait("all is recorded", time.Minute, func() bool { return f.recorded() == jobs })
	for task, n := range f.runsOf("job") {
		require.Equal(t, 1, n, "%s", task)
	}

	// A running task gets newer content in place, and completes with that.
	f.put("60s", "later")
	f.Wait("it runs", time.Minute, func() bool { return len(f.Look()) == tasks+1 })
	where := f.Look()["later"]
	f.put("0.1s", "later")
	f.Wait("it is recorded", time.Minute, func() bool { return f.recorded() == jobs+1 })
	for _, r := range f.History.Runs() {
		if r.Task == "later" {
			require.Equal(t, where[0], r.Node, "an update moves nothing")
		}
	}
	require.Equal(t, 2, f.runsOf("later")["later"])

	left := proctest.Now()
	f.workers[2].Leave()
	f.Wait("it is gone", time.Minute, func() bool { return !f.workers[2].Alive() })
	f.Wait("the others have its part", time.Minute, func() bool { return f.settled(tasks) })
	died := f.First(proctest.Died, left)
	require.NotNil(t, died)
	require.Equal(t, "exit status 0", died.Text, "%s", f.workers[2].Output.Tail())

	v := f.checkCompletions()
	require.Len(t, v.recorded, jobs+1)
	require.Empty(t, f.History.Overlaps())
}

// script is a manager with scripted answers.
type script struct {
	orchestratorv1.UnimplementedManagerServer
	registers chan *orchestratorv1.RegisterRequest
	granted   chan *orchestratorv1.RegisterResponse // nil: the registration is refused
	beats     chan error                            // the answers to heartbeats
	completed chan string
}

func (s *script) Register(ctx context.Context, req *orchestratorv1.RegisterRequest) (*orchestratorv1.RegisterResponse, error) {
	select {
	case s.registers <- req:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case r := <-s.granted:
		return r, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (s *script) Heartbeat(context.Context, *orchestratorv1.HeartbeatRequest) (*orchestratorv1.HeartbeatResponse, error) {
	if err := <-s.beats; err != nil {
		return nil, err
	}
	return &orchestratorv1.HeartbeatResponse{Lease: durationpb.New(time.Hour), Heartbeat: durationpb.New(time.Millisecond)}, nil
}

func (s *script) Complete(_ context.Context, req *orchestratorv1.CompleteRequest) (*orchestratorv1.CompleteResponse, error) {
	resp := &orchestratorv1.CompleteResponse{}
	for _, c := range req.GetCompletions() {
		s.completed <- fmt.Sprintf("%s@%d", c.GetTask(), c.GetContentVersion())
		resp.Outcomes = append(resp.Outcomes, orchestratorv1.CompletionOutcome_COMPLETION_OUTCOME_RECORDED)
	}
	return resp, nil
}

func (s *script) Leave(context.Context, *orchestratorv1.LeaveRequest) (*orchestratorv1.LeaveResponse, error) {
	return &orchestratorv1.LeaveResponse{}, nil
}

// TestR1_AWorkerInPythonKeepsTheProto makes the calls that the proto files specify
// in most detail.
func TestR1_AWorkerInPythonKeepsTheProto(t *testing.T) {
	t.Parallel()
	command := python(t)
	manager := &script{
		registers: make(chan *orchestratorv1.RegisterRequest), granted: make(chan *orchestratorv1.RegisterResponse),
		beats: make(chan error), completed: make(chan string, 10),
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}))
	orchestratorv1.RegisterManagerServer(server, manager)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() {
		server.Stop()
		require.NoError(t, <-served)
	})
	process := &proctest.Process{T: t, Command: append(command, "--manager", l.Addr().String(), "--name", "w",
		"--listen", proctest.FreeAddrs(t, 1)[0], "--lease", "3600", "--journal", filepath.Join(t.TempDir(), "journal"))}
	process.Start()

	var req *orchestratorv1.RegisterRequest
	select {
	case req = <-manager.registers:
	case <-process.Exited():
		require.Fail(t, "the worker has ended", process.Output.Tail())
	}
	require.Equal(t, "w", string(req.GetWorker()))
	require.Equal(t, time.Hour, req.GetLease().AsDuration())
	conn, err := grpc.NewClient(req.GetAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	worker := orchestratorv1.NewWorkerClient(conn)
	term := func(epoch, number uint64) *orchestratorv1.Term {
		return &orchestratorv1.Term{Epoch: epoch, Number: number}
	}
	var later *orchestratorv1.Term // of the last answer
	apply := func(of *orchestratorv1.Term, changes ...*orchestratorv1.Change) string {
		t.Helper()
		resp, err := worker.Apply(t.Context(), &orchestratorv1.ApplyRequest{Term: of, Incarnation: req.GetIncarnation(), Changes: changes})
		require.NoError(t, err, "%s", process.Output.Tail())
		var outcomes []string
		for _, r := range resp.GetResults() {
			outcomes = append(outcomes, strings.TrimPrefix(r.GetOutcome().String(), "OUTCOME_"))
		}
		later = resp.GetTerm()
		return strings.Join(outcomes, " ")
	}
	change := func(op orchestratorv1.Op, task, content string, version int64) *orchestratorv1.Change {
		return &orchestratorv1.Change{Op: op, Task: []byte(task), Content: []byte(content), ContentVersion: version}
	}
	const add, remove, update = orchestratorv1.Op_OP_ADD, orchestratorv1.Op_OP_REMOVE, orchestratorv1.Op_OP_UPDATE
	var known *orchestratorv1.Version
	report := func(of *orchestratorv1.Term) string {
		t.Helper()
		resp, err := worker.Report(t.Context(), &orchestratorv1.ReportRequest{Term: of, Incarnation: req.GetIncarnation(), Known: known})
		require.NoError(t, err, "%s", process.Output.Tail())
		require.Equal(t, req.GetIncarnation(), resp.GetVersion().GetIncarnation())
		require.Positive(t, resp.GetVersion().GetCounter())
		known, later = resp.GetVersion(), resp.GetTerm()
		var tasks []string
		for _, task := range resp.GetTasks() {
			tasks = append(tasks, fmt.Sprintf("%s@%d %s", task.GetName(), task.GetContentVersion(), strings.TrimPrefix(task.GetState().String(), "STATE_")))
		}
		return strings.Join(tasks, ", ")
	}
	reports := func(want string) { // in the end
		t.Helper()
		for known = nil; report(term(5, 3)) != want; known = nil {
			require.NoError(t, t.Context().Err())
		}
	}

	require.Equal(t, "REJECTED", apply(nil, change(add, "a", "forever", 1)), "before it has a lease")
	manager.granted <- &orchestratorv1.RegisterResponse{
		Term: term(5, 3), Lease: req.GetLease(), Heartbeat: durationpb.New(time.Millisecond),
	}
	for range 3 { // at the interval that the manager suggests, not a 12th of an hour
		manager.beats <- nil
	}
	require.Equal(t, "STALE", apply(nil, change(add, "a", "forever", 1)))
	require.Equal(t, "STALE", apply(term(5, 2), change(add, "a", "forever", 1)))
	require.Nil(t, later)
	require.Equal(t, "DEPOSED", apply(term(4, 9), change(add, "a", "forever", 1)))
	require.EqualExportedValues(t, term(5, 3), later)
	report(term(4, 9))
	require.EqualExportedValues(t, term(5, 3), later)
	require.Empty(t, apply(nil), "no changes, no results")

	require.Equal(t, "DONE DONE REJECTED REJECTED REJECTED REJECTED DONE", apply(term(5, 3),
		change(add, "a", "forever", 1), change(add, "job", "0.01s", 2), change(update, "not here", "forever", 3), change(add, "", "", 1),
		change(add, strings.Repeat("x", 1025), "", 1), change(9, "b", "", 1), change(remove, "not here", "", 0)))
	require.Equal(t, "job@2", <-manager.completed)
	reports("a@1 RUNNING, job@2 COMPLETED")
	require.Empty(t, report(term(5, 3)), "nothing has changed since")
	require.Equal(t, "DONE DONE", apply(term(5, 3), change(update, "job", "0.01s", 2), change(add, "job", "0.01s", 1)))
	require.Empty(t, report(term(5, 3)), "neither content is newer")
	require.Equal(t, "DONE", apply(term(5, 3), change(update, "job", "forever", 7)))
	require.Regexp(t, "job@7 (STARTING|RUNNING)", report(term(5, 3)), "newer content makes it pending again")
	reports("a@1 RUNNING, job@7 RUNNING")
	require.Equal(t, "DONE DONE", apply(term(5, 3), change(update, "a", "0.01s", 8), change(add, "job", "0.01s", 9)))
	require.ElementsMatch(t, []string{"a@8", "job@9"}, []string{<-manager.completed, <-manager.completed})
	reports("a@8 COMPLETED, job@9 COMPLETED")
	require.Equal(t, "DONE DONE DONE", apply(term(5, 3), change(remove, "a", "", 0), change(remove, "job", "", 0), change(add, "b", "forever", 1)))
	reports("b@1 RUNNING")

	for _, call := range []func() error{
		func() error {
			_, err := worker.Report(t.Context(), &orchestratorv1.ReportRequest{Term: term(9, 1), Incarnation: req.GetIncarnation() + 1})
			return err
		},
		func() error {
			_, err := worker.Apply(t.Context(), &orchestratorv1.ApplyRequest{Term: term(9, 1), Incarnation: req.GetIncarnation() + 1})
			return err
		},
	} {
		require.Equal(t, codes.FailedPrecondition, status.Code(call()))
	}
	require.Equal(t, "DONE", apply(term(5, 4), change(remove, "b", "", 0)), "that term is not remembered")

	require.Equal(t, "DONE", apply(term(5, 4), change(add, "c", "forever", 1)))
	manager.beats <- status.Error(codes.NotFound, "no such member")
	again := <-manager.registers
	require.NotEqual(t, req.GetIncarnation(), again.GetIncarnation())
	req, known = again, nil
	require.Empty(t, report(nil), "everything has stopped")
	manager.granted <- &orchestratorv1.RegisterResponse{Term: term(5, 4), Lease: req.GetLease(), Heartbeat: durationpb.New(time.Millisecond)}
	manager.beats <- nil
	require.Equal(t, "DEPOSED", apply(term(4, 1), change(add, "c", "forever", 1)), "terms are remembered")
	process.Leave()
	for process.Alive() {
		select {
		case manager.beats <- nil:
		case <-process.Exited():
		}
	}
}
