//go:build peers

package main

// Equal replicas on real stores. Package examples/bench/replicas measures them in a test.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// errMissing reports that this machine lacks what a part needs.
var errMissing = errors.New("not measured")

// replicaResults is what the test writes.
type replicaResults struct {
	Versions []string // of the stores
	Tables   []table
	Goals    []goal
}

// measureReplicas runs the test and reads what it wrote.
func measureReplicas(ctx context.Context, cfg config) (r replicaResults, err error) {
	cfg.log("replicas on PostgreSQL and etcd")
	dir, err := os.MkdirTemp("", "bench")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "results.json")
	cmd := exec.CommandContext(ctx, "go", "test", "-tags=peers", "-count=1", "-v", "-timeout=0", "github.com/f8949c05/orchestrator/examples/bench/replicas",
		"-replicas.out="+path, fmt.Sprintf("-replicas.quick=%t", cfg.quick), fmt.Sprintf("-replicas.short=%t", cfg.short))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return r, fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) { // the test was skipped
		_, why, _ := strings.Cut(string(out), "_test.go:")
		why, _, _ = strings.Cut(why, "\n")
		return r, fmt.Errorf("%w: replicas_test.go:%s", errMissing, why)
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	load, _ := os.ReadFile("/proc/loadavg") // only Linux has it
	if loads := strings.Fields(string(load)); len(loads) > 2 {
		r.Versions = append(r.Versions, "load average "+loads[2])
	}
	return r, err
}

func (r replicaResults) versions() []string { return r.Versions }
func (r replicaResults) goals() []goal      { return r.Goals }
func (r replicaResults) tables() []table    { return r.Tables }
