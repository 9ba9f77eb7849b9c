package simulator_test

import (
	"bytes"
	"flag"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/simulator"
)

// How many runs TestSimulate makes, from which seed on, and how long they are.
// `make simulate` makes 100,000.
var (
	schedules = flag.Int("simulator.schedules", 200, "how many seeds to run")
	firstSeed = flag.Uint64("simulator.seed", 1, "the first of them")
	terms     = flag.Int("simulator.terms", 30, "how many terms there are in each before the faults stop")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSimulate makes many runs, which share the processors, and prints what
// happened in them. A run that fails is printed with the command that repeats it.
func TestSimulate(t *testing.T) {
	var (
		mu    sync.Mutex
		total simulator.Report
		next  atomic.Uint64
		began = time.Now()
	)
	t.Run("schedules", func(t *testing.T) {
		for shard := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(shard), func(t *testing.T) {
				t.Parallel()
				var sum simulator.Report
				for !t.Failed() {
					n := next.Add(1) - 1
					if n >= uint64(*schedules) {
						break
					}
					report, err := simulator.Run(t, *firstSeed+n, simulator.Settings{Terms: *terms})
					if err != nil {
						next.Store(uint64(*schedules)) // for the other shards too
						require.Fail(t, err.Error(), "%s", story(t, *firstSeed+n))
					}
					sum.Add(report)
				}
				mu.Lock()
				defer mu.Unlock()
				total.Add(&sum)
			})
		}
	})
	took := time.Since(began)
	t.Logf("\n%v%-28s %v, %.0f schedules a second", &total, "wall time", took.Round(time.Millisecond), float64(total.Runs)/took.Seconds())
}

// story returns how a run that has failed is repeated, and its last lines.
func story(t *testing.T, seed uint64) string {
	var transcript bytes.Buffer
	_, err := simulator.Run(t, seed, simulator.Settings{Terms: *terms, Transcript: &transcript})
	lines := strings.Split(strings.TrimSpace(transcript.String()), "\n")
	first := lines[0]
	const enough = 120
	if len(lines) > enough {
		lines = lines[len(lines)-enough:]
	}
	return fmt.Sprintf("%s\n…\n%s\n%v\n\nto repeat it:\n  go test ./simulator -run 'TestSimulate$' -simulator.seed=%d -simulator.schedules=1 -simulator.terms=%d",
		first, strings.Join(lines, "\n"), err, seed, *terms)
}

// What once failed, and what it was about.
func TestSimulate_Regressions(t *testing.T) {
	for _, seed := range []uint64{
		7131,   // a failed call to a removed worker, and its successor of the same name
		2517,   // a worker that has rejoined before its leader heard that it had left
		3481,   // a leader that starts what another one, whose term goes on, has given up
		22286,  // a worker that comes back with what was started first elsewhere
		27872,  // a move of what was never there
		16642,  // a start that lands late, when one of the copies that it makes has moved
		43663,  // what is given back, when a worker has come back meanwhile
		110792, // a refusal that comes when its term has gone on
		210969, // two moves at once of a task with a copy that nobody knows of
		313148, // a move that starts first, and whose old place has stopped by then
		360468, // calls that fail since their leader cuts its term short
		133506, // a call that a leader cuts off, when its listing was over already
		385080, // workers that are tried out one after the other
		127851, // a worker that comes back when others have moved, starting first
		219317, // a worker that knows a higher epoch, and says so when its term has gone on
	} {
		_, err := simulator.Run(t, seed, simulator.Settings{})
		require.NoError(t, err)
	}
}
