//go:build peers

package main

// A term over a slow network is measured in a testing/synctest bubble, where time is
// exact. That requires a test, network_test.go. Its figures are read from its
// output.

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// networkJoin is the number of workers that join in the test.
const networkJoin = 10

// network holds the results of the test.
type network struct {
	cold, ideal time.Duration // the first term of an empty cluster
	calls       int
	// others is the time of the last move that does not involve the slow worker, and
	// othersUndelayed that of the last move without a slow worker.
	others, othersUndelayed time.Duration
}

const networkTest = "TestNetwork"

// measureNetwork runs the test and reads its attributes.
func measureNetwork(ctx context.Context, cfg config) (network, error) {
	cfg.log("a term over a slow network")
	cmd := exec.CommandContext(ctx, "go", "test", "-tags=peers", "-count=1", "-v", "-run", "^"+networkTest, "github.com/f8949c05/orchestrator/examples/bench")
	cmd.Stderr = os.Stderr
	// If the test fails because a goal is missed, its output still has the figures,
	// and the report shows the failure.
	out, failed := cmd.Output()
	n, err := readNetwork(out)
	if err != nil {
		return network{}, fmt.Errorf("%s: %w", strings.Join(cmd.Args, " "), errors.Join(err, failed))
	}
	return n, nil
}

// The names of the attributes.
const (
	attrCold       = "cold"
	attrIdeal      = "ideal"
	attrCalls      = "calls"
	attrOthers     = "others"
	attrUndelayed  = "others-undelayed"
	attrHowMany    = 5
	attrLinePrefix = "=== ATTR"
)

// readNetwork reads lines of the form "=== ATTR  Test name value".
func readNetwork(out []byte) (network, error) {
	var n network
	found := 0
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		rest, ok := strings.CutPrefix(strings.TrimSpace(lines.Text()), attrLinePrefix)
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		if len(fields) != 3 {
			return n, fmt.Errorf("cannot read %q", lines.Text())
		}
		found++
		var err error
		switch fields[1] {
		case attrCold:
			n.cold, err = time.ParseDuration(fields[2])
		case attrIdeal:
			n.ideal, err = time.ParseDuration(fields[2])
		case attrOthers:
			n.others, err = time.ParseDuration(fields[2])
		case attrUndelayed:
			n.othersUndelayed, err = time.ParseDuration(fields[2])
		case attrCalls:
			_, err = fmt.Sscan(fields[2], &n.calls)
		default:
			found--
		}
		if err != nil {
			return n, fmt.Errorf("cannot read %q: %w", lines.Text(), err)
		}
	}
	if found != attrHowMany {
		return n, fmt.Errorf("the test has %d attributes, want %d:\n%s", found, attrHowMany, out)
	}
	return n, nil
}

// networkGoal limits two ratios. One is the time of a cold start over a slow
// network, divided by the ideal time. The other is the time of the other workers'
// moves with one slow worker, divided by the time without.
const networkGoal = 1.2

func (n network) goals() []goal {
	return []goal{
		atMost("cold start over a slow network", "× the ideal", networkGoal, figure{value: float64(n.cold) / float64(n.ideal)}),
		atMost("one slow worker: time until all moves of other workers are done", "× the time without it", networkGoal,
			figure{value: float64(n.others) / float64(n.othersUndelayed)}),
	}
}

func (n network) tables() []table {
	t := table{Title: "1,000 workers, 100k tasks, 20 ms a call", Columns: []string{"figure"}}
	t.add("ms of a cold start, the whole term", ms(n.cold))
	t.add("ideal: one List and one Apply for each worker, no gap between calls", ms(n.ideal))
	t.add("calls made", count(n.calls))
	t.add(fmt.Sprintf("ms from the first write to the last move if %d workers join", networkJoin), ms(n.othersUndelayed))
	t.add("the same for moves of other workers if one takes 2 s a call", ms(n.others))
	return []table{t}
}
