//go:build browser

package browsertest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard/api"
)

// id is a name: a text, and a number for those that String makes alike.
type id struct {
	text string
	n    int
}

// MarshalText returns what pages show.
func (n id) MarshalText() ([]byte, error) {
	if n.n > 0 {
		return fmt.Appendf(nil, "%s %d", n.text, n.n), nil
	}
	return []byte(n.text), nil
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
	{text: `right to left: \u202etxt.exe\u202c \u2066x\u2069 \u200f`}, // looks like the one above
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

	// Each task wants another number of instances, so it is known which task a page shows.
	shown := make(map[string]string) // the text of each name on the pages
	for _, link := range p.links(f.url+"tasks", "task") {
		require.EqualValues(t, 200, p.visit(link), "%s", link)
		p.harmless()
		var task api.TaskDetail
		f.get(strings.Replace(link, "/task?", "/api/v1/task?", 1), &task)
		name := hostile[task.Instances-1]
		require.Empty(t, shown[name.String()+strconv.Itoa(name.n)], "two links lead to %q", name)
		shown[name.String()+strconv.Itoa(name.n)] = task.Name.Name
		require.Contains(t, eval[string](p, `document.querySelector("main").innerText`), fmt.Sprint(task.Instances, " instance"))
	}
	require.Len(t, shown, len(hostile))

	workers := make(map[string]bool)
	for _, link := range p.links(f.url+"workers", "worker") {
		require.EqualValues(t, 200, p.visit(link), "%s", link)
		p.harmless()
		var worker api.WorkerDetail
		f.get(strings.Replace(link, "/worker?", "/api/v1/worker?", 1), &worker)
		workers[worker.Name.Name] = true
	}
	require.Len(t, workers, len(hostile))

	// What can be typed or copied from a page finds the task.
	for _, name := range hostile {
		printed := shown[name.String()+strconv.Itoa(name.n)]
		for _, text := range []string{name.text, printed} {
			if strings.TrimSpace(text) == "" || !utf8.ValidString(text) || len(text) > 512 {
				continue
			}
			p.visit(f.url + "tasks?" + url.Values{"q": {text}}.Encode())
			p.harmless()
			require.Contains(t, eval[string](p, `document.querySelector("main").innerText`), printed, "%q", text)
		}
	}
}

// links returns the links of a list to the pages of its rows.
func (p *tab) links(list, page string) []string {
	p.t.Helper()
	p.visit(list)
	p.harmless()
	return eval[[]string](p, `[...new Set([...document.querySelectorAll("main a[href^='`+page+`?']")].map(a => a.href))]`)
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
