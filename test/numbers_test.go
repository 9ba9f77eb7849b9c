package test

// T18: what the numbers of tasks mean. weights_test.go has the moves for weights.

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

func TestT18_AMeasuredZeroIsTheLeastWeight(t *testing.T) {
	inBubble(t, given{workers: 2, running: 4}, func(t *testing.T, f *fleet) {
		heavy := f.RunsOn("w1")[0]
		weights := map[string]int64{"t1": 0, "t2": 0, "t3": 0, "t4": 0}
		weights[heavy] = 4000
		require.NoError(t, f.UpdateWeights(weights))
		f.term()
		require.Equal(t, []string{heavy}, f.RunsOn("w1"))
		require.EqualValues(t, 3, f.LastPlan().Workers[1].Weight)
		f.requireSettled()
	})
}

func TestT18_UpdateWeightsReplacesAllOfThem(t *testing.T) {
	inBubble(t, given{workers: 2, expected: 4}, func(t *testing.T, f *fleet) {
		require.NoError(t, f.AddTask("t4", orchestrator.WithTaskWeight(30)))
		total := func(weights map[string]int64) (sum int64) {
			require.NoError(t, f.UpdateWeights(weights))
			f.term()
			for _, w := range f.LastPlan().Workers {
				sum += w.Weight
			}
			return sum
		}
		require.EqualValues(t, 10+40+100+200, total(map[string]int64{"t1": 10, "t2": 40, "t3": 100, "t4": 200, "none": 5}))
		require.EqualValues(t, 10+20+20+30, total(map[string]int64{"t1": 10}), "t4 has its own weight, and the others the mean")
		require.NoError(t, f.AddTask("t1", orchestrator.WithTaskWeight(7)))
		require.EqualValues(t, 10+20+20+30, total(map[string]int64{"t1": 10}), "it outlives a redefinition")
		f.RemoveTask("t1")
		require.NoError(t, f.AddTask("t1"))
		f.term()
		require.Zero(t, f.LastPlan().Workers[0].Weight, "all weigh 30 now")
	})
}

// A weight of 0 names its task too.
func TestT18_WithReportedWeights_NamedIsEnough(t *testing.T) {
	inBubble(t, given{workers: 2, running: 40}, func(t *testing.T, f *fleet) {
		next := f.successor(orchestrator.WithReportedWeights())
		next.join("w3", "w4")
		next.requireQuiet(1)
		weights := make(map[string]int64)
		for i, name := range names("t", 40) {
			weights[name] = int64(max(0, 4-i)) // 36 of them are 0
		}
		require.NoError(t, next.UpdateWeights(weights))
		next.term()
		for _, w := range next.LastPlan().Workers {
			require.InDelta(t, 46.0/4, w.Weight, 1, w.Name)
		}
	})
}

func TestT18_Instances(t *testing.T) {
	for name, test := range map[string]struct {
		call func(f *fleet) error
		want int // of t1, which has 2
	}{
		"AddTask, not given":        {func(f *fleet) error { return f.AddTask("t1") }, 1},
		"AddTask, 0":                {func(f *fleet) error { return f.AddTask("t1", instances(0)) }, 0},
		"AddTask, -1":               {func(f *fleet) error { return f.AddTask("t1", instances(-1)) }, 0},
		"AddTask, unknown and 0":    {func(f *fleet) error { return f.AddTask("t9", instances(0)) }, 2},
		"WithTaskSettings, zero":    {func(f *fleet) error { return f.AddTask("t1", settingsOf(`{}`)) }, 1},
		"WithTaskSettings, -1":      {func(f *fleet) error { return f.AddTask("t1", settingsOf(`{"instances":-1}`)) }, 0},
		"WithTaskSettings, 0":       {func(f *fleet) error { return f.AddTask("t1", settingsOf(`{"instances":0}`)) }, 0},
		"UpdateTasks, not given":    {func(f *fleet) error { return f.UpdateTasks([]task{{Name: "t1"}}) }, 1},
		"UpdateTasks, -1":           {func(f *fleet) error { return f.UpdateTasks([]task{{Name: "t1", Instances: -1}, {Name: "t2"}}) }, 0},
		"UpdateTasks, -1 and alone": {func(f *fleet) error { return f.UpdateTasks([]task{{Name: "t1", Instances: -1}}) }, 0},
	} {
		t.Run(name, bubble(given{workers: 3}, func(t *testing.T, f *fleet) {
			require.NoError(t, f.AddTask("t1", instances(2)))
			f.term()
			require.Len(t, f.Running("t1"), 2)
			require.NoError(t, test.call(f))
			f.term()
			require.Len(t, f.Running("t1"), test.want)
			for _, expected := range f.ListExpectedTasks() {
				require.Positive(t, expected.Instances)
				require.NotEqual(t, "t9", expected.Name)
			}
			f.requireSettled()
			p, err := f.Plan(orchestrator.Hypothesis[string, string]{AddTasks: []task{{Name: "t1", Instances: -1}}})
			require.NoError(t, err)
			require.Len(t, p.Changes, test.want, "each of its instances stops")
		}))
	}
}

func settingsOf(text string) orchestrator.TaskOption {
	var s orchestrator.TaskSettings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		panic(err)
	}
	return orchestrator.WithTaskSettings(s)
}

func TestT18_SettingsInJSON(t *testing.T) {
	for text, n := range map[string]int{`{}`: 1, `{"instances":-1}`: -1, `{"instances":2}`: 2} {
		var s orchestrator.TaskSettings
		require.NoError(t, json.Unmarshal([]byte(text), &s))
		require.Equal(t, n, s.Instances)
		again, err := json.Marshal(s)
		require.NoError(t, err)
		require.Equal(t, text, string(again))
	}
	require.False(t, orchestrator.TaskSettings{Instances: -1}.Equal(orchestrator.TaskSettings{}))
}
