package dashboard_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// TestP12_PlacementIsShown shows labels, zones, limits and rules, and why tasks have no place.
func TestP12_PlacementIsShown(t *testing.T) { inBubble(t, showPlacement) }

func showPlacement(t *testing.T) {
	f := newFleet(t, 4, 1, nil)
	page := func(target string) string {
		w := serve(f.dashboard, request(http.MethodGet, target))
		require.Equal(t, http.StatusOK, w.Code)
		return w.Body.String()
	}
	f.terms(1)
	require.NotContains(t, page("/workers"), "Placement")
	require.NotContains(t, page("/worker?name=w1"), "Placement")

	gpu := orchestrator.WorkerSettings{Zone: "east", Labels: []string{"disk=ssd", "gpu"}, Share: 2, MaxTasks: 1}
	require.NoError(t, f.AddWorker("w1", orchestrator.WithWorkerSettings(gpu)))
	require.NoError(t, f.AddTask("t1", orchestrator.WithTaskRequires("gpu")))
	require.NoError(t, f.AddTask("t2", orchestrator.WithTaskRequires("gpu", "!spot"), orchestrator.WithTaskInstances(2),
		orchestrator.WithTaskMaxPerZone(1), orchestrator.WithTaskWeight(1500)))
	require.NoError(t, f.AddTask("t3", orchestrator.WithTaskRequires("tpu<b>")))
	f.terms(3)

	require.Equal(t, gpu, get[api.WorkerDetail](t, f.dashboard, "/api/v1/worker?name=w1").Settings)
	require.Contains(t, page("/workers"), "<bdi>zone east, disk=ssd, gpu, share 2, at most 1 task</bdi>")
	require.Contains(t, page("/worker?name=w1"), "Placement: <bdi>zone east, disk=ssd, gpu, share 2, at most 1 task</bdi>.")

	two := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t2")
	require.Equal(t, []string{"!spot", "gpu"}, two.Requires)
	require.Equal(t, 1, two.MaxPerZone)
	require.EqualValues(t, 1500, two.Weight)
	require.Contains(t, page("/task?name=t2"),
		"Its workers must have “gpu”. Its workers must not have “spot”. At most 1 instance may run in one zone. Each instance weighs 1,500.")

	three := get[api.TaskDetail](t, f.dashboard, "/api/v1/task?name=t3")
	require.Equal(t, 1, three.Missing)
	require.Len(t, three.Waiting, 1)
	require.Equal(t, &orchestrator.Causes{Workers: 4, Lacking: []orchestrator.LabelCount{{Label: "tpu<b>", Workers: 4}}}, three.Waiting[0].Causes)
	for _, r := range three.Reasons {
		require.Equal(t, "tpu<b>", r.Label, r.Worker)
	}
	require.Contains(t, page("/task?name=t3"), "labels, zones or limits leave no place: of 4 open workers 4 lack &#34;tpu&lt;b&gt;&#34;")
	require.Contains(t, page("/task?name=t3"), "the worker does not have the label “tpu&lt;b&gt;”")
	require.NotContains(t, page("/task?name=t3"), "<b>")
	require.Contains(t, f.problems(), `unplaced: 1 instance of t3 has no place: of 4 open workers 4 lack "tpu<b>".`)
	status := f.status()
	require.NotZero(t, status.Instances.Unplaceable)
}
