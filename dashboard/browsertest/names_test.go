package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// id is a name. Names with different numbers print alike.
type id struct {
	text string
	n    int
}

func (n id) String() string { return n.text }

// hostile are names that break pages or links which are made carelessly.
var hostile = []id{
	{text: ""},
	{text: "."},
	{text: ".."},
	{text: "../../task"},
	{text: "/"},
	{text: "a/b?c#d"},
	{text: "a&name=b;c=%2e%2e+d"},
	{text: " leading and trailing "},
	{text: "two\nlines\r\n\tand a tab"},
	{text: "nul\x00escape\x1b[31m"},
	{text: "not UTF-8: \xff\xfe"},
	{text: "right to left: \u202etxt.exe\u202c \u2066x\u2069 \u200f"},
	{text: `right to left: \u202etxt.exe\u202c \u2066x\u2069 \u200f`}, // prints like the one above
	{text: "twins", n: 1},
	{text: "twins", n: 2},
	{text: "twins", n: 3},
	{text: `<script>window.owned = "script"</script>`},
	{text: `"><img src=x onerror="window.owned = 'img'">`},
	{text: `' onfocus='window.owned = 1' autofocus='`},
	{text: "javascript:window.owned='link'"},
	{text: "</main></body></html><!--"},
	{text: "{{.}}${1}"},
	{text: "çà 世界 🙂 مرحبا"},
	{text: strings.Repeat("long ", 300)},
}

// Every name of a worker and of a task, whatever it contains, is linked, found by its link
// and by the search, and shown without what could deceive. None is executed.
func TestD10_HostileNames(t *testing.T) {
	t.Parallel()
	f := newFleet[id, id](t, hostile)
	for i, name := range hostile {
		require.NoError(t, f.AddTask(name, orchestrator.WithTaskInstances(i+1)))
	}
	f.term(2)
	p := open(t, f.url)

	// Each task wants another number of instances, and each worker runs another number of
	// tasks, so that it is known which of them a page shows.
	for _, kind := range []string{"task", "worker"} {
		links := make(map[string]bool)
		p.visit(f.url + kind + "s")
		p.harmless()
		for _, link := range eval[[]string](p, `[...document.querySelectorAll("main a[href^='`+kind+`?']")].map(a => a.href)`) {
			links[link] = true
		}
		require.Len(t, links, len(hostile), "%ss", kind)
		found := make(map[string]bool)
		for link := range links {
			require.EqualValues(t, 200, p.visit(link), "%s", link)
			p.harmless()
			var task api.TaskDetail
			var worker api.WorkerDetail
			switch kind {
			case "task":
				f.get(strings.Replace(link, "/task?", "/api/v1/task?", 1), &task)
				found[fmt.Sprint(task.Instances)] = true
				require.Contains(t, eval[string](p, `document.querySelector("main").innerText`), fmt.Sprint(task.Instances))
			case "worker":
				f.get(strings.Replace(link, "/worker?", "/api/v1/worker?", 1), &worker)
				require.Equal(t, orchestrator.Answering, worker.State)
				found[fmt.Sprint(worker.Name.Name, "\n", worker.Nth)] = true
			}
		}
		require.Len(t, found, len(hostile), "each link leads to another %s: %v", kind, found)
	}

	for _, name := range hostile {
		if strings.TrimSpace(name.text) == "" || len(name.text) > 512 || name.n > 0 {
			continue // the whole name cannot be typed, or names several tasks
		}
		p.visit(f.url + "tasks")
		p.visit(f.url + "tasks?" + eval[string](p, `new URLSearchParams({q: `+quoted(name.text)+`}).toString()`))
		p.harmless()
		require.NotContains(t, eval[string](p, `document.querySelector("main").innerText`), "No task")
	}
}

// harmless checks that no name of the page was executed, and none can deceive.
func (p *tab) harmless() {
	p.t.Helper()
	require.False(p.t, eval[bool](p, `"owned" in window`))
	require.Zero(p.t, eval[int](p, `document.querySelectorAll("main script, main img, main [onfocus], main [autofocus], a[href^='javascript:']").length`))
	require.True(p.t, eval[bool](p, `document.querySelector("main") != null && document.querySelector("footer, main ~ *, main") != null`))
	shown := eval[string](p, `document.documentElement.innerText + document.title`)
	require.NotRegexp(p.t, "[\u202a-\u202e\u2066-\u2069\u200e\u200f\\x00-\\x08\\x0b-\\x1f]", shown)
}

// quoted returns text as a literal of JavaScript.
func quoted(text string) string {
	literal, _ := json.Marshal(text) // of a string: it cannot fail
	return string(literal)
}

// get reads an answer of the API.
func (f *fleet[W, T]) get(url string, answer any) {
	f.t.Helper()
	request, err := http.NewRequestWithContext(f.t.Context(), http.MethodGet, url, nil)
	require.NoError(f.t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(f.t, err)
	defer response.Body.Close()
	require.Equal(f.t, http.StatusOK, response.StatusCode)
	require.NoError(f.t, json.NewDecoder(response.Body).Decode(answer))
}
