package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
)

func TestR2_AManagerCountsItsMembersAndWhatItRefuses(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		m := o.open(NewMemoryStore())
		require.Zero(t, m.MemberCount())
		none := m.RefusedCalls()
		require.Contains(t, none, "ResourceExhausted", "every code is present from the start")
		for cause, n := range none {
			require.Zero(t, n, cause)
		}
		o.staff("one", "two")
		require.Equal(t, 2, m.MemberCount())

		other := o.hire("one")
		require.Equal(t, codes.AlreadyExists, code(other.register()))
		for range 2 {
			require.Equal(t, codes.NotFound, code(other.beat()))
		}
		o.after(2 * aLease)
		require.Zero(t, m.MemberCount())
		none["AlreadyExists"], none["NotFound"] = 1, 2
		require.Equal(t, none, m.RefusedCalls())
		o.after(time.Second)
	})
}
