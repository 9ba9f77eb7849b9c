package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadTasks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "endpoints.csv")
	require.NoError(t, os.WriteFile(file, []byte(`name,url,instances
home, https://example.com/, 2
"search, slow",http://localhost:8080/search?q=a,1
`), 0o600))
	tasks, err := readTasks(file)
	require.NoError(t, err)
	require.Equal(t, []task{
		{Name: endpoint{"home", "https://example.com/"}, Instances: 2},
		{Name: endpoint{"search, slow", "http://localhost:8080/search?q=a"}, Instances: 1},
	}, tasks)
}

func TestReadTasksSaysFileLineAndReason(t *testing.T) {
	for content, want := range map[string]string{
		"":                                 ": no endpoints: want lines of name,url,instances",
		"name,url,instances\n":             ": no endpoints: want lines of name,url,instances",
		"a,http://a/,2\nb,http://b/\n":     ":2: 2 fields: want name,url,instances",
		"a,http://a/,2,x\n":                ":1: 4 fields: want name,url,instances",
		"a,http://a/,2\n\n,http://b/,1\n":  ":3: the name is empty",
		"a,ftp://a/,2\n":                   `:1: the url is "ftp://a/": want http:// or https:// and a host`,
		"a,example.com,2\n":                `:1: the url is "example.com": want http:// or https:// and a host`,
		"a,http://a/,two\n":                `:1: the instances are "two": want a whole number, at least 1`,
		"a,http://a/,2147483648\n":         `:1: the instances are "2147483648": want at most 2147483647`,
		"a,http://a/,0\n":                  `:1: the instances are "0": want a whole number, at least 1`,
		"a,http://a/,1\nb,http://b/,-3\n":  `:2: the instances are "-3": want a whole number, at least 1`,
		"a,http://a/,1\na,http://b/,1\n":   `:2: the name "a" is already on line 1`,
		"a,http://a/,1\n\"b,http://b/,1\n": `:2: extraneous or missing " in quoted-field`,
		"a,http://a/,1\nb\",http://b/,1\n": `:2: bare " in non-quoted-field`,
	} {
		file := filepath.Join(t.TempDir(), "endpoints.csv")
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		_, err := readTasks(file)
		require.Error(t, err, content)
		require.Equal(t, want, strings.TrimPrefix(err.Error(), file), content)
	}

	_, err := readTasks("missing.csv")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestParseRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`unexpected argument "now"`:              {"now"},
		"-workers is 2: want 3 to 100":           {"-workers", "2"},
		"-duration is -1s: must not be negative": {"-duration", "-1s"},
		"-tasks: open missing.csv: ":             {"-tasks", "missing.csv"},
	} {
		_, err := parse(args)
		require.ErrorContains(t, err, want)
	}
}
