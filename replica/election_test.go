package replica

// When a replica campaigns, confirms, evicts and leads.

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const lease = 12 * time.Second

// at returns a time that is d after the beginning of a test.
func at(d time.Duration) time.Time { return time.Unix(1_800_000_000, 0).Add(d) }

// candidate returns the election of member 1, which has synced with a table of others.
func candidate(v View) *election {
	e := &election{self: Member{ID: 1, Lease: lease, Joined: 1}, synced: true, observed: observer{seen: make(map[uint64]*sighting)}}
	v.Members = append(v.Members, e.self)
	v.Full, v.Beats = true, beatsOf(v.Members)
	e.received(&v, true, at(0), at(0))
	return e
}

// other returns another member.
func other(id uint64) Member {
	return Member{ID: id, Heartbeat: 1, Joined: id, Lease: lease, Answered: true}
}

// beatsOf returns the heartbeats of members.
func beatsOf(members []Member) map[uint64]uint64 {
	beats := make(map[uint64]uint64)
	for _, m := range members {
		beats[m.ID] = m.Heartbeat
	}
	return beats
}

// again shows the same View to e after some time, with the heartbeats given.
func again(e *election, v View, beats map[uint64]uint64, after time.Duration) {
	v.Full, v.Members, v.Beats = false, nil, beats
	all := beats != nil
	if beats == nil {
		v.Beats = map[uint64]uint64{v.Leader: 1}
	} else if beats[1] == 0 {
		beats[1] = 1
	}
	e.received(&v, all, at(after), at(after))
}

func TestA3_WhenACandidateCampaigns(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Epoch: 5 << 32, Leader: 2, Members: []Member{other(2)}}
	led := func(change func(v *View, e *election)) *election {
		view := v
		view.Members = []Member{other(2)}
		e := candidate(view)
		change(&view, e)
		view.Full = true
		view.Members = append(view.Members, e.self)
		view.Beats = beatsOf(view.Members)
		e.received(&view, true, at(0), at(0))
		return e
	}
	for name, test := range map[string]struct {
		change func(v *View, e *election)
		want   bool
	}{
		"the leader lives":         {func(*View, *election) {}, false},
		"the leader is gone":       {func(v *View, _ *election) { v.Members = nil }, true},
		"the leader drains":        {func(v *View, _ *election) { v.Members[0].Draining = true }, true},
		"a lower epoch":            {func(_ *View, e *election) { e.self.Epoch = 6 << 32 }, true},
		"not confirmed":            {func(v *View, _ *election) { v.Members, v.Confirmed = nil, false }, false},
		"draining":                 {func(v *View, e *election) { v.Members, e.self.Draining = nil, true }, false},
		"worker only":              {func(v *View, e *election) { v.Members, e.self.Role = nil, WorkerOnly }, false},
		"of an unknown role":       {func(v *View, e *election) { v.Members, e.self.Role = nil, 7 }, false},
		"elected, to lead":         {func(v *View, e *election) { v.Leader, e.campaign = 1, "s" }, false},
		"elected in another table": {func(v *View, e *election) { v.Leader, e.campaign = 1, "r" }, true},
		"stopped leading":          {func(v *View, e *election) { v.Leader, e.campaign, e.led = 1, "s", v.Epoch }, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, led(test.change).update(at(lease), 7).Campaign != 0)
		})
	}

	e := candidate(v)
	for d := time.Duration(0); d < 2*lease; d += lease / 12 {
		again(e, v, map[uint64]uint64{2: 1 + uint64(d)}, d)
		require.Zero(t, e.update(at(d), 0).Campaign, "it lives: %v", d)
	}
	again(e, v, map[uint64]uint64{2: 99}, 3*lease)
	again(e, v, map[uint64]uint64{2: 99}, 4*lease-1)
	require.Zero(t, e.update(at(4*lease), 0).Campaign)
	again(e, v, map[uint64]uint64{2: 99}, 4*lease)
	require.NotZero(t, e.update(at(4*lease), 0).Campaign, "dead")
	require.Zero(t, e.update(at(4*lease+lease/12-1), 0).Campaign, "at most once a heartbeat")
	require.NotZero(t, e.update(at(4*lease+lease/12), 0).Campaign)
}

func TestA3_TheFifthCandidateWaits(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Full: true}
	for id := uint64(2); id <= 6; id++ {
		v.Members = append(v.Members, other(id))
	}
	v.Members[0].Role = WorkerOnly
	e := &election{self: Member{ID: 1, Lease: lease, Joined: 9}, synced: true, observed: observer{seen: make(map[uint64]*sighting)}}
	v.Members = append(v.Members, e.self)
	v.Beats = beatsOf(v.Members)
	e.received(&v, true, at(0), at(0))
	require.False(t, e.watches)
	require.Zero(t, e.update(at(lease/4-1), 0).Campaign)
	require.NotZero(t, e.update(at(lease/4), 0).Campaign)
}

func TestA3_A7_ALeaderWithoutAnAnswerIsReplaced(t *testing.T) {
	silent := other(2)
	silent.Answered = false
	v := View{Server: "s", Confirmed: true, Epoch: 5, Leader: 2, Members: []Member{silent}}
	e := candidate(v)
	again(e, v, map[uint64]uint64{2: 2}, lease/3-1)
	require.False(t, e.wantsSource(at(lease/3-1)))
	again(e, v, map[uint64]uint64{2: 3}, lease/3)
	require.True(t, e.wantsSource(at(lease/3)))
	require.Zero(t, e.update(at(lease/3), 0).Campaign, "its own Source has not answered")
	e.self.Answered = true
	again(e, v, map[uint64]uint64{2: 4}, lease/3)
	require.NotZero(t, e.update(at(lease/3), 0).Campaign)
	v.Epoch = 6
	again(e, v, map[uint64]uint64{2: 5}, lease/2)
	require.False(t, e.wantsSource(at(lease/2)), "a new epoch begins anew")
	require.Zero(t, e.update(at(lease/2), 0).Campaign)
}

func TestB3_Epochs(t *testing.T) {
	for _, test := range []struct {
		epoch, seen, own uint64
		now              time.Time
		want             uint64
	}{
		{now: at(0), want: 64 * 1_800_000_000_000_000},
		{epoch: 1 << 60, now: at(0), want: 1<<60 + 1<<32},
		{epoch: 5, seen: 1 << 60, now: at(0), want: 1<<60 + 1<<32},
		{own: 1 << 60, now: at(0), want: 1<<60 + 1<<32},
		{epoch: 7, now: time.Unix(-1, 0), want: 7 + 1<<32},
		{epoch: MaxEpoch - 1<<32, now: at(0), want: 0},
		{seen: 1<<64 - 1, now: at(0), want: 0},
	} {
		e := candidate(View{Server: "s", Confirmed: true, Epoch: test.epoch, Seen: test.seen})
		e.self.Epoch = test.own
		want := test.want
		if want != 0 {
			want += 9
		}
		require.Equal(t, want, e.nextEpoch(test.now, 9), "%+v", test)
	}
	e := candidate(View{Server: "s", Confirmed: true, Epoch: MaxEpoch - 1})
	require.Zero(t, e.self.Epoch, "a member's is below 2^61")
}

func TestB7_ConfirmWaitsForTheLongestLease(t *testing.T) {
	long := other(2)
	long.Lease = 60 * time.Second
	v := View{Server: "s", Members: []Member{long}}
	e := candidate(v)
	v.Server = "t"
	v.Members = nil
	again(e, v, nil, time.Second)
	e.rejoin(9, true)
	e.synced = true
	require.False(t, e.update(at(61*time.Second-1), 0).Confirm, "also after the member has left, and a rejoin")
	u := e.update(at(61*time.Second), 0)
	require.True(t, u.Confirm)
	require.Zero(t, u.Campaign)
	require.Equal(t, "t", u.Server)
	e.head.Confirmed = true
	require.False(t, e.update(at(61*time.Second), 0).Confirm)

	odd := other(3)
	odd.Lease = time.Hour
	e = candidate(View{Server: "s", Members: []Member{odd}})
	require.False(t, e.update(at(MaxLease-1), 0).Confirm, "a lease out of range counts as two minutes")
	require.True(t, e.update(at(MaxLease), 0).Confirm)
}

// Death counts from when the value was first received to when the reading that still shows
// it began.
func TestA2_DeathIsObserved(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Members: []Member{other(2)}}
	e := candidate(v)
	look := func(beat uint64, began, received time.Duration) bool {
		e.received(&View{Server: "s", Confirmed: true, Beats: map[uint64]uint64{1: 1, 2: beat}}, true, at(began), at(received))
		return e.evict(at(received))[2] != 0
	}
	require.False(t, look(5, time.Second, 3*time.Second))
	require.False(t, look(5, 3*time.Second+lease-1, 3*time.Second+2*lease), "the answer is late")
	require.True(t, look(5, 3*time.Second+lease, 3*time.Second+lease))
	require.Equal(t, map[uint64]uint64{2: 5}, e.evict(at(4*lease)))
	require.False(t, look(4, 4*lease, 4*lease), "a table that was set back: any other value counts")
	e.received(&View{Server: "s", Gone: []uint64{2}}, true, at(5*lease), at(5*lease))
	require.Empty(t, e.evict(at(5*lease)))
}

// A record may have an earlier heartbeat than Beats: that is no sign of life.
func TestRg_ADeadMemberOfAnotherService(t *testing.T) {
	foreign := other(2)
	foreign.Service, foreign.Heartbeat, foreign.Joined = "another", 17, 0
	e := candidate(View{Server: "s", Confirmed: true})
	e.self.Service = "this"
	for i := range 3 {
		began := at(time.Duration(i) * time.Second)
		e.received(&View{Server: "s", Confirmed: true, Members: []Member{foreign}, Beats: map[uint64]uint64{1: 1, 2: 27}}, true, began, began)
		require.NotNil(t, e.foreign())
		require.False(t, e.foreign().moved)
	}
}

func TestB6_MembersThatVanish(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Epoch: 5, Leader: 2, Members: []Member{other(2), other(3)}}
	e := candidate(v)
	again(e, v, map[uint64]uint64{1: 1, 2: 2, 3: 2}, time.Second)
	again(e, v, map[uint64]uint64{1: 2}, 2*time.Second)
	require.True(t, e.observed.seen[2].isSilent() && e.observed.seen[3].isSilent())
	require.Empty(t, e.evict(at(2*time.Second+lease-1)))
	require.Equal(t, map[uint64]uint64{2: 0, 3: 0}, e.evict(at(2*time.Second+lease)))
	require.NotZero(t, e.update(at(lease), 0).Campaign, "the leader's record is gone")
	e.received(&View{Server: "s", Members: []Member{other(3)}, Gone: []uint64{2}}, false, at(lease), at(lease))
	require.Empty(t, e.evict(at(lease)))
	require.NotContains(t, e.observed.seen, uint64(2))
}

func TestA5_FormerIDs(t *testing.T) {
	e := candidate(View{Server: "s"})
	for id := uint64(100); id < 200; id++ {
		e.rejoin(id, id != 150)
	}
	require.Len(t, e.left, 64)
	require.NotContains(t, e.left, uint64(149), "nothing of it can have been stored")
	require.EqualValues(t, 198, e.left[63])
	u := e.update(at(0), 0)
	require.EqualValues(t, 199, u.Self)
	require.EqualValues(t, 1, u.Member.Heartbeat)
}

func TestA6_Alone(t *testing.T) {
	for name, test := range map[string]struct {
		others []Member
		alone  bool
	}{
		"nobody":                   {nil, true},
		"another":                  {[]Member{other(2)}, false},
		"a worker only":            {[]Member{{ID: 2, Lease: lease, Role: WorkerOnly}}, true},
		"a candidate only":         {[]Member{{ID: 2, Lease: lease, Role: CandidateOnly}}, true},
		"both":                     {[]Member{{ID: 2, Lease: lease, Role: CandidateOnly}, {ID: 3, Lease: lease, Role: WorkerOnly}}, false},
		"another that is draining": {[]Member{{ID: 2, Lease: lease, Draining: true}}, true},
	} {
		require.Equal(t, test.alone, candidate(View{Server: "s", Members: test.others}).isAlone(), name)
	}
}

func TestA9_WhenALeaderStops(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Epoch: 5, Leader: 1}
	leader := func() *election {
		e := candidate(v)
		e.campaign = "s"
		require.True(t, e.elected())
		e.leads, e.led = true, e.head.Epoch
		require.Empty(t, e.deposed())
		return e
	}
	for name, change := range map[string]func(v *View, e *election){
		"another Server":  func(v *View, _ *election) { v.Server = "t" },
		"another leader":  func(v *View, _ *election) { v.Leader = 2 },
		"a higher epoch":  func(v *View, _ *election) { v.Epoch = 6 },
		"the same epoch?": func(v *View, _ *election) { v.Epoch = 4 },
		"draining":        func(_ *View, e *election) { e.self.Draining = true },
	} {
		view, e := v, leader()
		change(&view, e)
		again(e, view, nil, time.Second)
		require.NotEmpty(t, e.deposed(), name)
	}
	e := leader()
	e.saw(1 << 60)
	e.leads = false
	again(e, v, nil, time.Second)
	require.False(t, e.elected(), "an epoch is led once")
	require.EqualValues(t, 1<<60+1<<32, e.update(at(lease), 0).Campaign, "above what was applied")
}

// Who is neither in a full View nor in an order is forgotten: its removal may have been shown
// before the View, and is not shown again.
func TestObserver_AFullViewForgets(t *testing.T) {
	v := View{Server: "s", Confirmed: true, Epoch: 5 << 32, Leader: 2, Members: []Member{other(2), other(3)}}
	e := candidate(v)
	v.Members, v.Full, v.Beats = []Member{e.self, other(2)}, true, map[uint64]uint64{1: 1, 2: 2}
	e.received(&v, false, at(time.Second), at(time.Second))
	_, lives := e.observed.alive(3)
	require.False(t, lives)
	require.Len(t, e.observed.seen, 2)
}
