package replica_test

import (
	"log/slog"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
)

// blocked is a writer that blocks, such as a full pipe.
type blocked struct{}

func (blocked) Write([]byte) (int, error) { select {} }

// The process exits with code 3, also if its log and its standard error are blocked: that
// may be why its tasks have not stopped.
func TestWithLastResort_ExitsAlsoIfTheLogIsBlocked(t *testing.T) {
	const part = "REPLICA_LAST_RESORT"
	if log := os.Getenv(part); log != "" {
		options := []replica.Option{replica.WithLease(replica.MaxLease, 0)} // it may wait for the log for 1.2 s
		if log == "blocked" {
			options = []replica.Option{replica.WithLease(time.Second, 0), replica.WithLogger(slog.New(slog.NewTextHandler(blocked{}, nil)))}
		}
		exit, err := replica.LastResort(options...)
		require.NoError(t, err)
		exit([]string{"task"})
		return
	}
	for _, log := range []string{"free", "blocked"} {
		t.Run(log, func(t *testing.T) {
			t.Parallel()
			c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestWithLastResort_ExitsAlsoIfTheLogIsBlocked$")
			c.Env = append(os.Environ(), part+"="+log)
			out, err := c.CombinedOutput()
			require.EqualError(t, err, "exit status 3", "%s", out)
			if log == "free" {
				require.Contains(t, string(out), "replica: tasks outlive the lease: [task]")
			}
		})
	}
}
