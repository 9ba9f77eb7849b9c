package etcd

import (
	"context"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
)

// cacheStory is an assignmentCache with the changes that a mirror delivers.
type cacheStory struct {
	*assignmentCache
	t   *testing.T
	rev int64
	kvs map[string]*mirror.KV
}

func newCacheStory(t *testing.T) *cacheStory {
	layout, err := keys.New("/work/")
	require.NoError(t, err)
	return &cacheStory{assignmentCache: newAssignmentCache(layout, layout.Leader(1), 1), t: t, rev: 1, kvs: map[string]*mirror.KV{}}
}

// put returns a change that puts a key, with the value if the cache keeps it.
func (c *cacheStory) put(key, value string) mirror.Change {
	c.rev++
	old := c.kvs[key]
	kv := &mirror.KV{Key: key, Create: c.rev, Mod: c.rev}
	if old != nil {
		kv.Create = old.Create
	}
	if c.kept(key) {
		kv.Value = []byte(value)
	}
	c.kvs[key] = kv
	return mirror.Change{Key: key, Old: old, New: kv}
}

func (c *cacheStory) del(key string) mirror.Change {
	c.rev++
	old := c.kvs[key]
	delete(c.kvs, key)
	return mirror.Change{Key: key, Old: old}
}

func (c *cacheStory) tell(changes ...mirror.Change) {
	c.apply(mirror.At{Cluster: 1, Revision: c.rev}, changes)
}

// join makes the leader's key exist and a worker join.
func (c *cacheStory) join(name string) WorkerID {
	c.tell(mirror.Change{Key: c.leader, New: &mirror.KV{Key: c.leader, Create: 1, Mod: 1}})
	c.tell(c.put(c.layout.Member(name), `{"lease":7}`))
	return WorkerID{Name: name, Incarnation: c.rev}
}

func TestE5_CacheListsWhatIsAssignedAndWhatIsClaimed(t *testing.T) {
	c := newCacheStory(t)
	w := c.join("w")
	list := func() []string {
		tasks, err := c.list(w)
		require.NoError(t, err)
		return tasks
	}
	require.Empty(t, list())
	c.tell(c.put(c.layout.Assigned("w", "b"), ""), c.put(c.layout.Assigned("w", "a/1"), ""), c.put(c.layout.Assigned("x", "c"), ""))
	require.Equal(t, []string{"a/1", "b"}, list())

	same := list()
	c.tell(c.put(c.layout.Active("w", "b"), `{"starting":true}`))
	c.tell(c.put(c.layout.Active("w", "b"), `{}`), c.put(c.layout.Registry("b"), "content"), c.put(c.layout.Refused("w", "z"), `{"reason":"no"}`))
	require.Equal(t, unsafe.SliceData(same), unsafe.SliceData(list()), "the very same slice while nothing changes (C2)")

	c.tell(c.del(c.layout.Assigned("w", "b")), c.del(c.layout.Assigned("w", "a/1")))
	require.Equal(t, []string{"b"}, list(), "b is stopping")
	require.Equal(t, []string{"a/1", "b"}, same)
	c.tell(c.del(c.layout.Active("w", "b")))
	require.Empty(t, list())

	c.tell(c.del(c.layout.Member("w")), c.put(c.layout.Member("w"), `{"lease":8}`))
	_, err := c.list(w)
	require.ErrorIs(t, err, orchestrator.ErrRejected, "another incarnation")
}

func TestE5_CacheShowsEachStep(t *testing.T) {
	c := newCacheStory(t)
	c.join("w")
	look := func() taskState {
		v, err := c.look("w", []string{"t"})
		require.NoError(t, err)
		require.EqualValues(t, 7, v.lease)
		require.Equal(t, c.rev, v.rev)
		return v.states["t"]
	}
	v, err := c.look("w", nil)
	require.NoError(t, err)
	c.tell(c.put(c.layout.Assigned("w", "t"), ""))
	<-v.change
	s := look()
	require.Equal(t, c.rev, s.assigned)
	require.Equal(t, map[string]int64{"t": s.assigned}, c.unclaimed("w", time.Now()))
	require.Empty(t, c.unclaimed("w", time.Now().Add(-time.Minute)))
	c.tell(c.put(c.layout.Active("w", "t"), `{"starting":true}`))
	require.Equal(t, c.rev, look().claim)
	require.True(t, look().starting)
	require.Empty(t, c.unclaimed("w", time.Now()))
	claim := c.rev
	c.tell(c.put(c.layout.Active("w", "t"), `{}`))
	require.Equal(t, claim, look().claim)
	require.False(t, look().starting)
	c.tell(c.del(c.layout.Active("w", "t")), c.del(c.layout.Assigned("w", "t")), c.put(c.layout.Refused("w", "t"), `{"reason":"full","assigned":3}`))
	require.Equal(t, taskState{refused: 3, reason: "full"}, look())
}

func TestE2_CacheEndsWithTheLeadersKey(t *testing.T) {
	for name, change := range map[string]func(c *cacheStory) mirror.Change{
		"deleted": func(c *cacheStory) mirror.Change { return mirror.Change{Key: c.leader} },
		"made again": func(c *cacheStory) mirror.Change {
			return mirror.Change{Key: c.leader, New: &mirror.KV{Key: c.leader, Create: 99, Mod: 99}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCacheStory(t)
			w := c.join("w")
			v, err := c.look("w", nil)
			require.NoError(t, err)
			c.tell(change(c))
			<-v.change
			_, err = c.list(w)
			require.ErrorIs(t, err, orchestrator.ErrDeposed)
			_, err = c.look("w", nil)
			require.ErrorIs(t, err, orchestrator.ErrDeposed)
		})
	}
	t.Run("was never there", func(t *testing.T) {
		c := newCacheStory(t)
		c.tell(c.put(c.layout.Member("w"), `{}`))
		require.ErrorIs(t, c.ended(), orchestrator.ErrDeposed)
	})
}

// A Remove waits for the claim that its transaction found, and for a state that
// includes its own change.
func TestE5_RemoveWaitsForTheClaimThatItFound(t *testing.T) {
	for name, c := range map[string]struct {
		made, found, seen int64
		taskState         taskState
		done              bool
	}{
		"nothing was there":                         {made: 9, seen: 3, done: true},
		"nothing was claimed":                       {made: 9, seen: 9, done: true},
		"the end of the assignment is not seen yet": {made: 9, seen: 5, taskState: taskState{assigned: 5}},
		"the end of a claim is not seen yet":        {made: 9, seen: 7, taskState: taskState{claim: 7}},
		"the claim is not seen yet":                 {made: 9, found: 7, seen: 3},
		"the claim is not seen, the assignment is":  {made: 9, found: 7, seen: 5, taskState: taskState{assigned: 5}},
		"the claim is there":                        {made: 9, found: 7, seen: 9, taskState: taskState{claim: 7}},
		"the claim is gone":                         {made: 9, found: 7, seen: 11, done: true},
		"the claim is gone, and claimed again":      {made: 9, found: 7, seen: 15, taskState: taskState{assigned: 14, claim: 15}, done: true},
		"the claim is gone, and assigned again":     {made: 9, found: 7, seen: 14, taskState: taskState{assigned: 14}, done: true},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := resultAfter(orchestrator.OpRemove, c.made, c.found, c.seen, c.taskState)
			require.NoError(t, err)
			require.Equal(t, c.done, done)
		})
	}
}

// An Add waits for a state that includes it.
func TestE5_AddWaitsForTheWorker(t *testing.T) {
	for name, c := range map[string]struct {
		seen      int64
		taskState taskState
		done      bool
		want      error
	}{
		"not seen yet":               {seen: 8, taskState: taskState{}},
		"not seen yet, refused once": {seen: 8, taskState: taskState{refused: 3, reason: "full"}},
		"not claimed yet":            {seen: 9, taskState: taskState{assigned: 9}},
		"claimed":                    {seen: 10, taskState: taskState{assigned: 9, claim: 10, starting: true}},
		"started":                    {seen: 11, taskState: taskState{assigned: 9, claim: 10}, done: true},
		"running already":            {seen: 9, taskState: taskState{assigned: 9, claim: 4}, done: true},
		"refused":                    {seen: 11, taskState: taskState{refused: 9, reason: "full"}, done: true, want: orchestrator.ErrRejected},
		"withdrawn, or gone":         {seen: 11, taskState: taskState{refused: 3, reason: "full"}, done: true, want: orchestrator.ErrRejected},
		"taken away again":           {seen: 11, taskState: taskState{claim: 10}, done: true, want: orchestrator.ErrStopping},
	} {
		t.Run(name, func(t *testing.T) {
			done, err := resultAfter(orchestrator.OpAdd, 9, 0, c.seen, c.taskState)
			require.Equal(t, c.done, done)
			require.ErrorIs(t, err, c.want)
			if c.taskState.refused == 9 {
				require.ErrorContains(t, err, "full")
			}
		})
	}
}

func TestE5_ResultsAtTheDeadline(t *testing.T) {
	require.ErrorIs(t, resultAtEnd(orchestrator.OpRemove, "t", context.DeadlineExceeded), orchestrator.ErrStopping)
	err := resultAtEnd(orchestrator.OpAdd, "t", context.DeadlineExceeded)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, orchestrator.ErrRejected)

	done, err := resultBefore(orchestrator.OpAdd, taskState{claim: 4})
	require.True(t, done)
	require.ErrorIs(t, err, orchestrator.ErrStopping)
	for _, s := range []taskState{{}, {assigned: 3}, {assigned: 3, claim: 4}, {refused: 2}} {
		done, _ = resultBefore(orchestrator.OpAdd, s)
		require.False(t, done)
		done, _ = resultBefore(orchestrator.OpRemove, s)
		require.False(t, done)
	}
	done, err = resultBefore(orchestrator.OpList, taskState{})
	require.True(t, done)
	require.ErrorIs(t, err, orchestrator.ErrRejected)
}
