package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A manager may be away for as long as the package documentation says, at any time,
// and no worker loses its lease.
func TestR2_AManagerMayBeAwayForSoLong(t *testing.T) {
	const away = lease - lease/10 - stopping - 2*lease/12 - 1200*time.Millisecond
	inOffice(t, func(t *testing.T, o *office) {
		store := NewMemoryStore()
		m := o.open(store)
		m.put("a", "b", "c")
		for _, name := range []string{"one", "two", "three"} {
			o.employ(name, name)
		}
		o.pass(time.Second)
		require.Len(t, o.where(), 3)
		for i := range 12 {
			o.pass(lease + time.Duration(i)*lease/12/12)
			began := time.Now()
			m.close()
			o.mu.Lock()
			delete(o.at, managerAt)
			o.mu.Unlock()
			o.pass(away - time.Since(began))
			m = o.open(store)
			o.pass(lease)
			require.Equal(t, 3, o.starts(), "in round %d", i)
			require.Len(t, m.Members(), 3)
		}
	})
}
