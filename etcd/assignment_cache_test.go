package etcd

import (
	"testing"
	"time"
	"unsafe"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/etcd/internal/mirror"
	"github.com/stretchr/testify/require"
)

// cacheStory is an assignmentCache with the changes that a mirror delivers.
type cacheStory struct {
	*assignmentCache
	t   *testing.T
	rev int64
	kvs map[string]*mirror.KV
}

func newBoardStory(t *testing.T) *cacheStory {
	layout, err := keys.New("/work/")
	require.NoError(t, err)
	return &cacheStory{assignmentCache: newAssignmentCache(layout, layout.Leader(1), 1), t: t, rev: 1, kvs: map[string]*mirror.KV{}}
}

// put returns a change that puts a key, with the value if the cache keeps it.
func (b *cacheStory) put(key, value string) mirror.Change {
	b.rev++
	old := b.kvs[key]
	kv := &mirror.KV{Key: key, Create: b.rev, Mod: b.rev}
	if old != nil {
		kv.Create = old.Create
	}
	if b.kept(key) {
		kv.Value = []byte(value)
	}
	b.kvs[key] = kv
	return mirror.Change{Key: key, Old: old, New: kv}
}

func (b *cacheStory) del(key string) mirror.Change {
	b.rev++
	old := b.kvs[key]
	delete(b.kvs, key)
	return mirror.Change{Key: key, Old: old}
}

func (b *cacheStory) tell(changes ...mirror.Change) {
	b.apply(mirror.At{Cluster: 1, Revision: b.rev}, changes)
}

// join makes the leader's key exist and a worker join.
func (b *cacheStory) join(name string) Worker {
	b.tell(mirror.Change{Key: b.leader, New: &mirror.KV{Key: b.leader, Create: 1, Mod: 1}})
	b.tell(b.put(b.layout.Member(name), `{"lease":7}`))
	return Worker{Name: name, Incarnation: b.rev}
}

func TestE5_BoardListsWhatIsAssignedAndWhatIsClaimed(t *testing.T) {
	b := newBoardStory(t)
	w := b.join("w")
	list := func() []string {
		tasks, err := b.list(w)
		require.NoError(t, err)
		return tasks
	}
	require.Empty(t, list())
	b.tell(b.put(b.layout.Assigned("w", "b"), ""), b.put(b.layout.Assigned("w", "a/1"), ""), b.put(b.layout.Assigned("x", "c"), ""))
	require.Equal(t, []string{"a/1", "b"}, list())

	same := list()
	b.tell(b.put(b.layout.Active("w", "b"), `{"starting":true}`))
	b.tell(b.put(b.layout.Active("w", "b"), `{}`), b.put(b.layout.Registry("b"), "content"), b.put(b.layout.Refused("w", "z"), `{"reason":"no"}`))
	require.Equal(t, unsafe.SliceData(same), unsafe.SliceData(list()), "the very same slice while nothing changes (C2)")

	b.tell(b.del(b.layout.Assigned("w", "b")), b.del(b.layout.Assigned("w", "a/1")))
	require.Equal(t, []string{"b"}, list(), "b is stopping")
	require.Equal(t, []string{"a/1", "b"}, same)
	b.tell(b.del(b.layout.Active("w", "b")))
	require.Empty(t, list())

	b.tell(b.del(b.layout.Member("w")), b.put(b.layout.Member("w"), `{"lease":8}`))
	_, err := b.list(w)
	require.ErrorIs(t, err, orchestrator.ErrRejected, "another incarnation")
}

func TestE5_BoardShowsEachStep(t *testing.T) {
	b := newBoardStory(t)
	b.join("w")
	look := func() taskState {
		v, err := b.look("w", []string{"t"})
		require.NoError(t, err)
		require.EqualValues(t, 7, v.lease)
		require.Equal(t, b.rev, v.rev)
		return v.states["t"]
	}
	v, err := b.look("w", nil)
	require.NoError(t, err)
	b.tell(b.put(b.layout.Assigned("w", "t"), ""))
	<-v.change
	s := look()
	require.Equal(t, b.rev, s.assigned)
	require.Equal(t, map[string]int64{"t": s.assigned}, b.unclaimed("w", time.Now()))
	require.Empty(t, b.unclaimed("w", time.Now().Add(-time.Minute)))
	b.tell(b.put(b.layout.Active("w", "t"), `{"starting":true}`))
	require.Equal(t, b.rev, look().claim)
	require.True(t, look().starting)
	require.Empty(t, b.unclaimed("w", time.Now()))
	claim := b.rev
	b.tell(b.put(b.layout.Active("w", "t"), `{}`))
	require.Equal(t, claim, look().claim)
	require.False(t, look().starting)
	b.tell(b.del(b.layout.Active("w", "t")), b.del(b.layout.Assigned("w", "t")), b.put(b.layout.Refused("w", "t"), `{"reason":"full","assigned":3}`))
	require.Equal(t, taskState{refused: 3, reason: "full"}, look())
}

func TestE2_BoardEndsWithTheLeadersKey(t *testing.T) {
	for name, change := range map[string]func(b *cacheStory) mirror.Change{
		"deleted": func(b *cacheStory) mirror.Change { return mirror.Change{Key: b.leader} },
		"made again": func(b *cacheStory) mirror.Change {
			return mirror.Change{Key: b.leader, New: &mirror.KV{Key: b.leader, Create: 99, Mod: 99}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoardStory(t)
			w := b.join("w")
			v, err := b.look("w", nil)
			require.NoError(t, err)
			b.tell(change(b))
			<-v.change
			_, err = b.list(w)
			require.ErrorIs(t, err, orchestrator.ErrDeposed)
			_, err = b.look("w", nil)
			require.ErrorIs(t, err, orchestrator.ErrDeposed)
		})
	}
	t.Run("was never there", func(t *testing.T) {
		b := newBoardStory(t)
		b.tell(b.put(b.layout.Member("w"), `{}`))
		require.ErrorIs(t, b.ended(), orchestrator.ErrDeposed)
	})
}
