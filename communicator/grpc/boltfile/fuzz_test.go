package boltfile

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/bbolt"

	"github.com/f8949c05/orchestrator/worker"
)

// FuzzTrace encodes and decodes a task with any name, and decodes arbitrary values.
func FuzzTrace(f *testing.F) {
	f.Add("", false, int64(0), uint64(0), uint64(0), []byte("{}"))
	f.Add("=#/\xff", true, int64(-1), uint64(1<<63), uint64(3), []byte(`{"name":"YQ==","version":1e9}`))
	f.Add(strings.Repeat("n", bbolt.MaxKeySize), false, int64(5), uint64(0), uint64(0), []byte("null"))
	f.Fuzz(func(t *testing.T, name string, completed bool, version int64, token, scope uint64, other []byte) {
		record := worker.TaskRecord[string]{Task: name, Completed: completed, Version: version, Token: token, Scope: scope, Receipt: string(other)}
		key, value, err := encode(record)
		require.NoError(t, err)
		require.NotEmpty(t, key)
		require.LessOrEqual(t, len(key), bbolt.MaxKeySize)
		got, err := decode(key, value)
		require.NoError(t, err)
		require.Equal(t, record, got)

		if read, err := decode(key, other); err == nil && key[0] == '=' {
			require.Equal(t, name, read.Task, "whatever the value says")
		}
	})
}
