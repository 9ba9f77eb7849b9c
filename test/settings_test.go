package test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

func TestP10_WorkerSettings(t *testing.T) {
	for text, bad := range map[string]orchestrator.WorkerSettings{
		`the label ""`:                               {Labels: []string{"gpu", ""}},
		"must not begin with \"!\"":                  {Labels: []string{"!gpu"}},
		"must not contain a comma":                   {Labels: []string{"a,b"}},
		"contains a character that is not printable": {Labels: []string{"a\nb"}},
		`Labels "\xff" is not UTF-8`:                 {Labels: []string{"\xff"}},
		`Zone "\xff" is not UTF-8`:                   {Zone: "\xff"},
		`Zone "a\tb" contains`:                       {Zone: "a\tb"},
		"has 257 bytes":                              {Zone: strings.Repeat("x", 257)},
		"has 300 bytes":                              {Labels: []string{strings.Repeat("x", 300)}},
		"has 65 labels":                              {Labels: make([]string, 65)},
		"have 4097 bytes":                            {Zone: "a", Labels: slices.Repeat([]string{strings.Repeat("x", 256)}, 16)},
		"Share is -1":                                {Share: -1},
		"Share is 1000001":                           {Share: 1_000_001},
		"MaxTasks is -1":                             {MaxTasks: -1},
		"MaxTasks is 2147483648":                     {MaxTasks: 1 << 31},
	} {
		err := bad.Check()
		require.ErrorIs(t, err, orchestrator.ErrInvalid, text)
		require.ErrorContains(t, err, text)
	}
	most := orchestrator.WorkerSettings{Zone: "é", Labels: []string{strings.Repeat("x", 256)}, Share: 1_000_000, MaxTasks: 1<<31 - 1}
	require.NoError(t, most.Check())
}

func TestP10_EqualWorkerSettings(t *testing.T) {
	s := orchestrator.WorkerSettings{Zone: "a", Labels: []string{"ssd", "gpu", "ssd"}, MaxTasks: 5}
	same := orchestrator.WorkerSettings{Zone: "a", Labels: []string{"gpu", "ssd"}, Share: 1, MaxTasks: 5}
	require.True(t, s.Equal(same))
	require.Equal(t, same, s.Normalized())
	require.Equal(t, []string{"ssd", "gpu", "ssd"}, s.Labels, "copied")
	for _, other := range []orchestrator.WorkerSettings{
		{Zone: "b", Labels: same.Labels, MaxTasks: 5},
		{Zone: "a", Labels: []string{"gpu"}, MaxTasks: 5},
		{Zone: "a", Labels: same.Labels, Share: 2, MaxTasks: 5},
		{Zone: "a", Labels: same.Labels},
	} {
		require.False(t, s.Equal(other))
	}
}
