package manager

import (
	"errors"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/state"
	"github.com/stretchr/testify/require"
)

// broken is a store that cannot be read.
type broken struct{ err error }

func (b broken) Load() (map[string][]byte, error) { return nil, b.err }

func (b broken) Save(map[string][]byte) error { return b.err }

// Workers may have outlived a lost store.
func TestR2_AnEmptyStoreBeginsAboveThoseBefore(t *testing.T) {
	s := NewMemoryStore()
	l, err := openCommitter(s, state.Rules{})
	require.NoError(t, err)
	now := time.Now()
	require.WithinDuration(t, now, time.UnixMilli(int64(l.epoch)), time.Minute)
	first, err := load(s)
	require.NoError(t, err)
	require.Equal(t, l.epoch, first.Epoch)
	require.WithinDuration(t, now, time.UnixMicro(first.Revision), time.Minute)

	next, err := openCommitter(s, state.Rules{})
	require.NoError(t, err)
	require.Equal(t, l.epoch+1, next.epoch, "rises from there")
	second, err := load(s)
	require.NoError(t, err)
	require.Equal(t, first.Revision, second.Revision)
}

func TestR2_AStoreThatCannotBeReadIsAnError(t *testing.T) {
	failure := errors.New("no disk")
	_, err := load(broken{failure})
	require.ErrorIs(t, err, failure)
}
