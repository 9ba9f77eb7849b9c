package keys_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
)

func layout(t testing.TB) keys.Layout {
	t.Helper()
	l, err := keys.New("/work/")
	require.NoError(t, err)
	return l
}

func TestE1_KeysCanBeRead(t *testing.T) {
	l := layout(t)
	for _, c := range []struct {
		got, want    string
		kind         keys.Kind
		worker, task string
	}{
		{l.Format(), "/work/format", keys.FormatKey, "", ""},
		{l.Term(), "/work/term", keys.Term, "", ""},
		{l.Begun(), "/work/begun", keys.Begun, "", ""},
		{l.Leader(0x1f), "/work/leader/1f", keys.Leader, "", ""},
		{l.Registry("poll eu/west"), "/work/registry/poll%20eu%2Fwest", keys.Registry, "", "poll eu/west"},
		{l.Tasks("größe\n"), "/work/tasks/gr%C3%B6%C3%9Fe%0A", keys.Tasks, "", "größe\n"},
		{l.Member("host-1.lan:80"), "/work/members/host-1.lan:80", keys.Member, "host-1.lan:80", ""},
		{l.Load("a@b"), "/work/workers/a@b", keys.Load, "a@b", ""},
		{l.Drain("a"), "/work/drains/a", keys.Drain, "a", ""},
		{l.Assigned("a/b", "c/d"), "/work/assigned/a%2Fb/c%2Fd", keys.Assigned, "a/b", "c/d"},
		{l.Active("a", "%"), "/work/active/a/%25", keys.Active, "a", "%"},
		{l.Refused("a", "\x00\xff"), "/work/refused/a/%00%FF", keys.Refused, "a", "\x00\xff"},
	} {
		require.Equal(t, c.want, c.got)
		kind, worker, task, ok := l.Parse(c.got)
		require.True(t, ok, c.got)
		require.Equal(t, c.kind, kind, c.got)
		require.Equal(t, c.worker, worker)
		require.Equal(t, c.task, task)
	}
}

func TestE1_OtherKeysAreNotRead(t *testing.T) {
	l := layout(t)
	for _, key := range []string{
		"", "/work", "/work/", "/work/term/", "/work/format2", "/other/term", "/work/registry", "/work/registry/",
		"/work/registry/a/b", "/work/registry/%2f", "/work/registry/%41", "/work/registry/%4", "/work/registry/a%", "/work/registry/a b",
		"/work/registry/%2Fä", "/work/assigned/a", "/work/assigned/a/", "/work/assigned//b", "/work/assigned/a/b/c",
		"/work/leader/", "/work/leader/xyz", "/work/elsewhere/a",
	} {
		kind, worker, task, ok := l.Parse(key)
		require.False(t, ok, key)
		require.Zero(t, kind)
		require.Empty(t, worker+task)
	}
}

func TestE1_Prefixes(t *testing.T) {
	for _, prefix := range []string{"/work/", "a/", "/a/b/", "/größe/"} {
		l, err := keys.New(prefix)
		require.NoError(t, err)
		require.Equal(t, prefix, l.Prefix())
	}
	for _, prefix := range []string{"", "/", "//", "/work", "/a b/", "/\n/", "/\xff/", "\x00/"} {
		_, err := keys.New(prefix)
		require.ErrorContains(t, err, "prefix")
	}
}

// FuzzNames checks that each pair of names survives the way into a key and back, and
// that each becomes one printable segment.
func FuzzNames(f *testing.F) {
	f.Add("a", "b")
	f.Add("a/b", "%2F")
	f.Add("\x00\xff", "größe\n")
	l := layout(f)
	f.Fuzz(func(t *testing.T, worker, task string) {
		if worker == "" || task == "" {
			return
		}
		key := l.Assigned(worker, task)
		require.Equal(t, 4, strings.Count(key, "/"))
		require.NotContains(t, strings.Map(func(r rune) rune {
			if r <= ' ' || r >= 0x7f {
				return '!'
			}
			return r
		}, key), "!")
		kind, w, k, ok := l.Parse(key)
		require.True(t, ok)
		require.Equal(t, keys.Assigned, kind)
		require.Equal(t, worker, w)
		require.Equal(t, task, k)
	})
}

// FuzzParse checks that no two keys have the same meaning.
func FuzzParse(f *testing.F) {
	f.Add("registry/a%2Fb")
	f.Add("registry/%2f")
	f.Add("active/a/b")
	f.Add("leader/0a")
	l := layout(f)
	f.Fuzz(func(t *testing.T, rest string) {
		key := l.Prefix() + rest
		kind, worker, task, ok := l.Parse(key)
		if !ok {
			return
		}
		again := map[keys.Kind]string{
			keys.FormatKey: l.Format(), keys.Term: l.Term(), keys.Begun: l.Begun(), keys.Registry: l.Registry(task), keys.Tasks: l.Tasks(task),
			keys.Member: l.Member(worker), keys.Load: l.Load(worker), keys.Drain: l.Drain(worker),
			keys.Assigned: l.Assigned(worker, task), keys.Active: l.Active(worker, task), keys.Refused: l.Refused(worker, task),
		}
		if kind != keys.Leader { // a leader's key contains no names
			require.Equal(t, key, again[kind])
		}
	})
}
