package grpc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
)

func TestR3_FilesWithoutNames(t *testing.T) {
	files := testca.New(t, "ours").Manager(t)
	for says, names := range map[string][3]string{
		"certificate": {"", files.Key, files.CA},
		"key":         {files.Cert, "", files.CA},
		"authorities": {files.Cert, files.Key, ""},
	} {
		_, err := LoadCredentials(names[0], names[1], names[2])
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.EqualError(t, err, "load credentials: invalid: file name of "+says+" is empty")
	}
	_, err := LoadCredentials("", "", "")
	require.Equal(t, 3, strings.Count(err.Error(), "is empty"), "%v", err)
}

// Credentials that were not loaded are an error: they must not mean plaintext.
func TestR3_CredentialsMustBeLoaded(t *testing.T) {
	for _, c := range []*Credentials{nil, {}} {
		_, err := NewCommunicator(WithCredentials(c))
		require.ErrorIs(t, err, orchestrator.ErrInvalid)
		require.ErrorContains(t, err, "LoadCredentials")
	}
}
