package memory_test

// The end of a replica's process, with real processes.

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// programEnv makes TestProgram the program: a replica with this task.
const programEnv = "ORCHESTRATOR_REPLICA_TASK"

// TestProgram is the main function of the process that TestA6_SignalsEndAReplica starts.
func TestProgram(t *testing.T) {
	task, ok := os.LookupEnv(programEnv)
	if !ok {
		t.Skip("only in a process of another test")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	err := replica.Run(ctx, memory.New(), replica.Names(task), func(ctx context.Context, task string) error {
		fmt.Println("runs", task)
		<-ctx.Done()
		if task == "stubborn" {
			select {}
		}
		return nil
	}, replica.WithLease(2*time.Second, 100*time.Millisecond))
	fmt.Println("ended:", err)
	os.Exit(0)
}

// TestA6_SignalsEndAReplica sends SIGTERM to a replica, once and twice. A task that ignores its context
// is named, with the code with which the process then ends.
func TestA6_SignalsEndAReplica(t *testing.T) {
	for _, c := range []struct {
		task  string
		until []string // the texts after each of which a signal is sent
		ends  int      // the exit code, or the number of the signal
		says  []string
	}{
		{"usual", []string{"runs usual"}, 0, []string{"ended: <nil>"}},
		{"stubborn", []string{"runs stubborn"}, 3, []string{"tasks do not stop, the last resort is called at the end of the lease", "tasks=[stubborn]", "code=3"}},
		{"stubborn", []string{"runs stubborn", "tasks do not stop"}, int(syscall.SIGTERM), []string{"tasks=[stubborn]"}},
	} {
		t.Run(fmt.Sprint(c.task, " ", len(c.until)), func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProgram$")
			cmd.Env = append(os.Environ(), programEnv+"="+c.task)
			r, w, err := os.Pipe()
			require.NoError(t, err)
			cmd.Stdout, cmd.Stderr = w, w
			require.NoError(t, cmd.Start())
			require.NoError(t, w.Close())
			lines := bufio.NewReader(r)
			var said strings.Builder
			for _, text := range c.until {
				for line := ""; !strings.Contains(line, text); said.WriteString(line) {
					line, err = lines.ReadString('\n')
					require.NoError(t, err, said.String())
				}
				require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			}
			rest, err := io.ReadAll(lines)
			require.NoError(t, err)
			said.Write(rest)
			err = cmd.Wait()
			code := 0
			if ended, ok := errors.AsType[*exec.ExitError](err); ok {
				if code = ended.ExitCode(); code < 0 {
					status, _ := ended.Sys().(syscall.WaitStatus)
					code = int(status.Signal())
				}
			}
			require.Equal(t, c.ends, code, said.String())
			for _, text := range c.says {
				require.Contains(t, said.String(), text)
			}
		})
	}
}
