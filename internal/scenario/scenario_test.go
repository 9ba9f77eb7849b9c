package scenario

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlay(t *testing.T) {
	want := strings.TrimLeft(`
# Former output is replaced.
leader
join a b
tasks t1..t4
term
  term 1, 2ms
  start  t1 t4 on a (missing)
  start  t2 t3 on b (missing)
  a: t1 t4
  b: t2 t3

cut b
term
  term 2, 1ms
  waits  t2 t3 (held, b)
  error  list worker b: the worker is cut off: b
  a: t1 t4
  b: t2 t3, silent
`, "\n")
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, want, Play(t, strings.ReplaceAll(want, "  term 1, 2ms", "  term 7")))
	})
}

func TestExpand(t *testing.T) {
	require.Equal(t, []string{"a", "t9", "t10", "t11", "t1..x"}, expand([]string{"a", "t9..t11", "t1..x"}))
}
