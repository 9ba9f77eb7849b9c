package main

// How failures of etcd reach the API.

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/examples/allocator/api"
)

func TestBackend_ErrorsInTheWordsOfTheAPI(t *testing.T) {
	for from, to := range map[error]error{
		etcd.ErrNotFound: api.ErrNotFound,
		etcd.ErrExists:   api.ErrExists,
		etcd.ErrTooLarge: api.ErrTooLarge,
	} {
		require.ErrorIs(t, known(fmt.Errorf("put a: %w", from)), to)
	}
	other := errors.New("other")
	require.Equal(t, other, known(other))
	require.NoError(t, known(nil))
}
