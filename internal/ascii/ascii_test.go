package ascii_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/ascii"
)

func TestEscape(t *testing.T) {
	for _, s := range []string{"", "plain", `ü"'\\`, "\n\t\x00\x7f\xff\xfe", "\u2028"} {
		escaped := ascii.Escape(s)
		for _, b := range []byte(escaped) {
			require.True(t, b >= ' ' && b < 0x7f, "%q", escaped)
		}
		require.Equal(t, s, ascii.Unescape(escaped))
	}
	require.Equal(t, `a\q`, ascii.Unescape(`a\q`), "it was changed by hand")
}

func TestMap(t *testing.T) {
	type inner struct {
		S  string
		At time.Time
	}
	type value struct {
		M map[string]inner
		L []string
		P *inner
		N int
	}
	at := time.Unix(1, 0)
	v := value{M: map[string]inner{"ü": {"ö", at}}, L: []string{"ä"}, P: &inner{S: "ß"}, N: 3}
	escaped := ascii.Map(v, ascii.Escape)
	require.Equal(t, value{M: map[string]inner{`\u00fc`: {`\u00f6`, at}}, L: []string{`\u00e4`}, P: &inner{S: `\u00df`}, N: 3}, escaped)
	require.Equal(t, v, ascii.Map(escaped, ascii.Unescape))
	require.Equal(t, "ß", v.P.S, "nothing that it shares was changed")
	require.Equal(t, value{}, ascii.Map(value{}, ascii.Escape))
}
