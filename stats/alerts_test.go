package stats_test

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/internal/proctest"
	"github.com/f8949c05/orchestrator/recruit"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/stats"
	"github.com/f8949c05/orchestrator/worker"
)

// refusing is a manager that has refused calls.
type refusing struct{}

func (refusing) MemberCount() int                { return 3 }
func (refusing) RefusedCalls() map[string]uint64 { return map[string]uint64{"NotFound": 1} }

// exported returns the values of each label of every metric of this package.
func exported(t *testing.T) map[string]map[string][]string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	collector, err := stats.Register(registry)
	require.NoError(t, err)
	collector.Observe(orchestrator.TermStats{})
	w, err := worker.New(func(context.Context, string) error { return nil }, worker.WithLease(20*time.Second, 3*time.Second))
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close(context.WithoutCancel(t.Context())) })
	_, err = stats.RegisterWorker(registry, w)
	require.NoError(t, err)
	_, err = stats.RegisterManager(registry, refusing{})
	require.NoError(t, err)
	_, err = stats.RegisterReplica(registry, func() replica.Status { return replica.Status{} })
	require.NoError(t, err)
	r, err := recruit.New()
	require.NoError(t, err)
	require.NoError(t, r.Install("expiry", 0.5, recruit.JobFunc(func(context.Context) error { return nil })))
	_, err = stats.RegisterRecruiter(registry, r)
	require.NoError(t, err)

	families, err := registry.Gather()
	require.NoError(t, err)
	metrics := make(map[string]map[string][]string)
	for _, f := range families {
		labels := make(map[string][]string)
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = append(labels[l.GetName()], l.GetValue())
			}
		}
		metrics[f.GetName()] = labels
		if len(f.GetMetric()) > 0 && f.GetMetric()[0].GetHistogram() != nil {
			labels["le"] = nil
			metrics[f.GetName()+"_bucket"] = labels
		}
	}
	return metrics
}

var (
	metricInQuery  = regexp.MustCompile(`\b((?:orchestrator|recruit)_\w+)(?:\{([^}]*)\})?`)
	matcherInQuery = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	groupInQuery   = regexp.MustCompile(`\bby \(([^)]*)\)`)
	labelInText    = regexp.MustCompile(`\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}`)
)

// targetLabels are the labels that Prometheus adds to each metric.
var targetLabels = []string{"job", "instance"}

// checkQuery requires that the metrics of a query are exported with the labels that the
// query names, and that text, a legend or a summary, names no other labels. It returns the
// metrics.
func checkQuery(t *testing.T, metrics map[string]map[string][]string, query, text string) []string {
	t.Helper()
	var found []string
	labels := slices.Clone(targetLabels)
	for _, m := range metricInQuery.FindAllStringSubmatch(query, -1) {
		of, ok := metrics[m[1]]
		require.True(t, ok, "no metric %s, in %s", m[1], query)
		found = append(found, m[1])
		for label := range of {
			labels = append(labels, label)
		}
		for _, matcher := range matcherInQuery.FindAllStringSubmatch(m[2], -1) {
			label, pattern := matcher[1], matcher[2]
			if slices.Contains(targetLabels, label) {
				continue
			}
			values, ok := of[label]
			require.True(t, ok, "%s has no label %s, in %s", m[1], label, query)
			for value := range strings.SplitSeq(pattern, "|") {
				require.Contains(t, values, value, "of %s, in %s", label, query)
			}
		}
	}
	require.NotEmpty(t, found, query)
	for _, m := range groupInQuery.FindAllStringSubmatch(query, -1) {
		for label := range strings.SplitSeq(m[1], ",") {
			require.Contains(t, labels, strings.TrimSpace(label), query)
		}
	}
	for _, m := range labelInText.FindAllStringSubmatch(text, -1) {
		require.Contains(t, labels, m[1], "%s, for %s", text, query)
	}
	return found
}

// Every alert asks for metrics that exist, has a summary, and names its section of the
// runbook, which has a section for each alert.
func TestAlerts(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	runbook, err := os.ReadFile("../docs/operating.md")
	require.NoError(t, err)
	sections := regexp.MustCompile(`(?m)^### ((?:Orchestrator|Recruit)\w+)$`).FindAllStringSubmatch(string(runbook), -1)

	metrics := exported(t)
	var alerts []string
	for _, group := range file.Groups {
		require.NotEmpty(t, group.Name)
		for _, rule := range group.Rules {
			alerts = append(alerts, rule.Alert)
			checkQuery(t, metrics, rule.Expr, rule.Annotations["summary"])
			if rule.For != "" {
				_, err := time.ParseDuration(rule.For)
				require.NoError(t, err, rule.Alert)
			}
			require.Contains(t, []string{"critical", "warning"}, rule.Labels["severity"], rule.Alert)
			require.NotEmpty(t, rule.Annotations["summary"], rule.Alert)
			require.Len(t, rule.Annotations, 2)
			require.Equal(t, "https://github.com/f8949c05/orchestrator/blob/main/docs/operating.md#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
		}
	}
	require.Greater(t, len(alerts), 10)
	var documented []string
	for _, section := range sections {
		documented = append(documented, section[1])
	}
	require.Equal(t, alerts, documented, "the runbook has the alerts in their order")
}

// Each alert fires in its situation, and ends, as alerts_test.yml says. The file has for each
// alert a time before its situation, one during it and one after it.
func TestAlerts_FireAndEnd(t *testing.T) {
	text, err := os.ReadFile("../docs/alerts_test.yml")
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Checks []alertCheck `yaml:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	complete := make(map[string]bool)
	for _, test := range file.Tests {
		slices.SortStableFunc(test.Checks, func(a, b alertCheck) int { return cmp.Compare(a.EvalTime, b.EvalTime) })
		seen := make(map[string]string)
		for _, c := range test.Checks {
			seen[c.Alertname] += map[bool]string{true: "1", false: "0"}[len(c.ExpAlerts) > 0]
			complete[c.Alertname] = complete[c.Alertname] || strings.Contains(seen[c.Alertname], "010")
		}
	}
	alerts, err := os.ReadFile("../docs/alerts.yml")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(alerts), -1) {
		require.True(t, complete[m[1]], m[1])
	}

	promtool := proctest.Program(t, "prometheus", "promtool")
	out, err := exec.CommandContext(t.Context(), promtool, "test", "rules", "../docs/alerts_test.yml").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

type alertCheck struct {
	Alertname string
	EvalTime  time.Duration `yaml:"eval_time"`
	ExpAlerts []any         `yaml:"exp_alerts"`
}

// Every panel of the board asks for metrics that exist, and the board shows every metric
// of an orchestrator.
func TestBoard(t *testing.T) {
	text, err := os.ReadFile("../docs/grafana/orchestrator.json")
	require.NoError(t, err)
	var board struct {
		Title  string
		Panels []struct {
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	require.NoError(t, json.Unmarshal(text, &board))
	require.NotEmpty(t, board.Title)

	metrics := exported(t)
	shown := make(map[string]bool)
	for _, panel := range board.Panels {
		require.NotEmpty(t, panel.Title)
		require.LessOrEqual(t, panel.GridPos.X+panel.GridPos.W, 24, panel.Title)
		if panel.Type == "row" {
			continue
		}
		require.NotEmpty(t, panel.Targets, panel.Title)
		for _, target := range panel.Targets {
			for _, metric := range checkQuery(t, metrics, target.Expr, target.LegendFormat) {
				shown[strings.TrimSuffix(metric, "_bucket")] = true
			}
		}
	}
	for _, variable := range board.Templating.List {
		if variable.Definition != "" {
			checkQuery(t, metrics, variable.Definition, "")
		}
	}
	for metric := range metrics {
		if strings.HasPrefix(metric, "orchestrator_") {
			require.True(t, shown[strings.TrimSuffix(metric, "_bucket")], metric)
		}
	}
}
