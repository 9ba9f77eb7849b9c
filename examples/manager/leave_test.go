package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The last workers have no other worker for their tasks. They end with code 0, long
// before leaveTime has passed.
func TestScaledToZero(t *testing.T) {
	t.Parallel()
	f := folder(filepath.Join(t.TempDir(), "data"))
	require.NoError(t, f.make())
	workers := storyWorkers()[:2]
	require.NoError(t, certify(f, workers...))
	var stderr bytes.Buffer
	m, err := startManager(t.Context(), f, func(plan) {}, &stderr)
	require.NoError(t, err)
	all := &fleet{manager: m, folder: f, view: &view{out: io.Discard}, stderr: io.Discard, processes: make(map[string]*process)}
	t.Cleanup(all.stop)
	require.NoError(t, all.join(t.Context(), workers...))
	for i := range 4 {
		name := fmt.Sprint("grows", i)
		write(t, filepath.Dir(f.log(name)), filepath.Base(f.log(name)), "a line\n")
		item, err := content{File: f.log(name), To: f.followed(name)}.item(kindFollow + name)
		require.NoError(t, err)
		_, err = m.Put(t.Context(), item)
		require.NoError(t, err)
	}
	require.NoError(t, all.until(t.Context(), func() error { _, err := all.even(4); return err }))
	began := time.Now()
	require.NoError(t, all.leave(t.Context(), workers...))
	require.Less(t, time.Since(began), leaveTime/2)
	require.Empty(t, m.Members())
	require.NoError(t, m.stop())
	require.Empty(t, stderr.String())
}
