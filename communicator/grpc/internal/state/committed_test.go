package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestR1_PagesAreInOrderWhateverHappened(t *testing.T) {
	c := NewCommitted(newRecords())
	random := rand.New(rand.NewPCG(1, 2))
	want := make(map[string]bool)
	for range 300 {
		change := newRecords()
		for range random.IntN(20) {
			name := fmt.Sprint(random.IntN(100))
			change.tasks[name], want[name] = item(name, ""), true
			if random.IntN(2) == 0 {
				change.tasks[name] = nil
				delete(want, name)
			}
		}
		c.Apply(&change)
		if random.IntN(3) == 0 {
			continue
		}
		names := slices.Sorted(maps.Keys(want))
		var got []string
		after, limit := "", 1+random.IntN(10)
		for {
			page := c.Items(after, limit)
			for _, i := range page {
				got = append(got, i.Name)
			}
			if len(page) < limit {
				break
			}
			after = page[limit-1].Name
		}
		require.True(t, slices.Equal(names, got), "%s: %s", names, got)
		between := fmt.Sprint(random.IntN(100), "-")
		page := c.Items(between, 1)
		i := slices.IndexFunc(names, func(n string) bool { return strings.Compare(n, between) > 0 })
		require.Equal(t, i >= 0, len(page) > 0)
		if i >= 0 {
			require.Equal(t, names[i], page[0].Name)
		}
	}
}

// Names are added and removed, each once, and no page is requested.
func TestR1_NothingIsRememberedOfWhatHasComeAndGone(t *testing.T) {
	c := NewCommitted(newRecords())
	apply := func(of func(change *Records)) {
		change := newRecords()
		of(&change)
		c.Apply(&change)
	}
	for i := range 100 {
		name := fmt.Sprint(i)
		apply(func(change *Records) { change.tasks[name] = item(name, "") })
		apply(func(change *Records) { change.tasks[name], change.done[name] = nil, &finished{} })
		apply(func(change *Records) { change.done[name] = nil })
	}
	require.Empty(t, c.tasks.touched)
	require.Empty(t, c.done.touched)

	apply(func(change *Records) { change.tasks["kept"] = item("kept", "") })
	require.Len(t, c.Items("", 10), 1)
	apply(func(change *Records) { change.tasks["kept"] = nil })
	apply(func(change *Records) { change.tasks["kept"] = item("kept", "again") })
	require.Empty(t, c.tasks.touched)
	require.Len(t, c.Items("", 10), 1)
}
