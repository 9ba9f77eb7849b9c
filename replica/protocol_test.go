package replica

// Epochs under clocks that are wrong, and what a record may have.

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// The time is part of an epoch, and no other use is made of a wall clock.
func TestNeverStuck_ClocksYearsApart(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	clocks := map[string]time.Time{
		"right":         now,
		"a day behind":  now.AddDate(0, 0, -1),
		"before 1970":   now.AddDate(-90, 0, 0),
		"decades ahead": now.AddDate(80, 0, 0),
		"zero":          {},
	}
	for first, at := range clocks {
		for second, later := range clocks {
			for _, random := range []uint32{0, 1, math.MaxUint32} {
				a := protocol{}
				e1 := a.nextEpoch(at, random)
				b := protocol{view: View{Epoch: e1}}
				e2 := b.nextEpoch(later, 0)
				require.GreaterOrEqual(t, e2, e1+1<<32, "a clock that is %s after one that is %s", second, first)
				require.NoError(t, (&Update{
					Self: Member{ID: 1, Heartbeat: 1, Lease: time.Second, Epoch: e2}, Epoch: e1, Campaign: e2,
				}).Check())
			}
		}
	}
}

// The next epoch is above every one that is known from anywhere.
func TestNeverStuck_ALostEpochIsFoundInTheRecords(t *testing.T) {
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	ahead := uint64(now.AddDate(80, 0, 0).UnixMicro())
	for name, p := range map[string]*protocol{
		"in the table":         {view: View{Epoch: ahead}},
		"in another's record":  {view: View{Epoch: 5, Members: []Member{{ID: 1, Epoch: 3}, {ID: 2, Epoch: ahead}}}},
		"seen by this replica": {self: Member{Epoch: ahead}, view: View{Epoch: 5}},
	} {
		require.GreaterOrEqual(t, p.nextEpoch(now, 0), ahead+1<<32, name)
	}
	p := protocol{self: Member{ID: 1, Lease: time.Second}}
	require.Equal(t, ahead, p.update(now, ahead, 0, health{}).Self.Epoch, "and it publishes what its worker has seen")
}

// However many elections there were, another one is possible.
func TestCheck_ElectionsStayPossible(t *testing.T) {
	u := Update{Self: Member{ID: 1, Heartbeat: 1, Lease: time.Second, Epoch: maxEpoch}}
	require.NoError(t, u.Check())
	p := protocol{view: View{Members: []Member{u.Self}}}
	u.Campaign = p.nextEpoch(time.Now(), math.MaxUint32)
	require.NoError(t, u.Check())
	u.Self.Epoch++
	require.ErrorIs(t, u.Check(), orchestrator.ErrInvalid)
	require.ErrorContains(t, u.Check(), "epoch is 4611686018427387905: must be at most 2⁶²")
}

// Without TLS any process may call a replica, with any epoch. Restarts mend that, so the
// table must not keep it.
func TestCheck_NoCallMakesElectionsImpossible(t *testing.T) {
	now := time.Now()
	for _, called := range []uint64{maxSeen, maxSeen + 1, maxEpoch, maxEpoch + 1, math.MaxInt64, math.MaxUint64} {
		p := protocol{self: Member{ID: 1, Lease: time.Second, Epoch: 5}, view: View{Epoch: 5}}
		u := p.update(now, called, 0, health{})
		require.NoError(t, u.Check(), "called with %d", called)
		for range 100 {
			u.Epoch, u.Campaign = p.view.Epoch, p.nextEpoch(now, math.MaxUint32)
			require.NoError(t, u.Check(), "called with %d", called)
			p.received(View{Epoch: u.Campaign, Leader: 1, Members: []Member{u.Self}}, now, now)
			u = p.update(now, called, 0, health{})
		}
		require.NoError(t, u.Check(), "called with %d", called)
	}
}

func TestRole_OfANewerProgram(t *testing.T) {
	require.Equal(t, "role(7)", Role(7).String())
	require.True(t, Role(7).Works(), "it may run tasks")
	require.False(t, Role(7).Leads(), "no candidate waits for it")
	for role, want := range map[Role][2]bool{WorkerAndCandidate: {true, true}, WorkerOnly: {true, false}, CandidateOnly: {false, true}} {
		require.Equal(t, want, [2]bool{role.Works(), role.Leads()}, "%v", role)
	}
}
