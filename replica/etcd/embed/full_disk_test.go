//go:build unix

package embed_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/f8949c05/orchestrator/replica/etcd/embed"
)

// fullDisk is the environment variable that names the data folder of the process
// that fills its disk.
const fullDisk = "EMBED_TEST_FULL_DISK"

// A server whose disk is full reports it on stderr and on Err, and ends its process.
// No acknowledged write is lost.
func TestE2_AFullDiskEndsTheProcess(t *testing.T) {
	t.Parallel() // it mostly waits
	dir := filepath.Join(t.TempDir(), "data")
	c := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFillsTheDisk$")
	c.Env = append(os.Environ(), fullDisk+"="+dir)
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	err := c.Run()
	require.Error(t, err)
	require.Equal(t, 1, c.ProcessState.ExitCode(), "%v\n%s%s", err, &stdout, &stderr)
	require.Contains(t, stderr.String(), "etcd cannot continue")
	require.Contains(t, stderr.String(), "the process exits")
	require.Contains(t, stdout.String(), "Err: etcd cannot continue")

	got, err := client(t, start(t, embed.Config{Dir: dir})).Get(t.Context(), "k", clientv3.WithPrefix())
	require.NoError(t, err)
	acknowledged := strings.Count(stdout.String(), "acknowledged")
	require.GreaterOrEqual(t, acknowledged, 10)
	require.GreaterOrEqual(t, len(got.Kvs), acknowledged)
}

// TestFillsTheDisk is the child process of the test above.
func TestFillsTheDisk(t *testing.T) {
	dir := os.Getenv(fullDisk)
	if dir == "" {
		t.Skip("runs only as a child process")
	}
	signal.Ignore(syscall.SIGXFSZ) // so that a write beyond the limit fails
	s, err := embed.Start(t.Context(), embed.Config{Dir: dir})
	require.NoError(t, err)
	go func() { fmt.Println("Err:", <-s.Err()) }()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Endpoint()}, Logger: zap.NewNop()})
	require.NoError(t, err)
	for i := range 1000 {
		if i == 10 {
			require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := c.Put(ctx, fmt.Sprintf("k%04d", i), "v"); err == nil {
			fmt.Println("acknowledged")
		}
		cancel()
	}
}
