package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzCluster: a description is refused, or it is one JSON value and has a plan.
func FuzzCluster(f *testing.F) {
	f.Add(string(sample))
	f.Add(`{"tasks": [{"name": "a", "instances": 3}], "workers": [{"name": "w1", "tasks": ["a", "a", "b"]}]}`)
	f.Add(`{"tasks": [{"name": "\t\n\u0000", "instances": 2147483647}], "workers": [{"name": ""}, {"name": "w"}]}`)
	f.Add(`{"workers": [{"name": "w1"}]} {}`)
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "cluster.json")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		var out strings.Builder
		if err := run(t.Context(), &out, file, ""); err != nil {
			require.NotEmpty(t, err.Error())
			return
		}
		require.True(t, json.Valid([]byte(text)))
		require.Contains(t, out.String(), "As it is:\n")
		require.Contains(t, out.String(), "\nWithout ")
	})
}
