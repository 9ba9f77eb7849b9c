//go:build browser

package browsertest

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// pages are the pages of the fleet that troubled returns: each once, and those that look
// otherwise for other workers and tasks more often.
var pages = []struct{ name, path string }{
	{"overview", ""},
	{"workers", "workers"},
	{"workers-silent", "workers?state=silent"},
	{"worker", "worker?name=worker-07"},
	{"worker-silent", "worker?name=worker-01"},
	{"worker-quarantined", "worker?name=worker-03"},
	{"worker-draining", "worker?name=worker-04"},
	{"worker-lost", "worker?name=worker-05"},
	{"tasks", "tasks"},
	{"tasks-waiting", "tasks?waiting=unplaced"},
	{"tasks-found", "tasks?q=tenant-01"},
	{"task", "task?name=tenant-019"},
	{"task-waiting", "task?name=poison"},
	{"terms", "terms"},
	{"what-if-drain", "what-if?drain=worker-07&add=new"},
	{"what-if-lose", "what-if?lose=worker-01&lose=worker-07"},
}

// otherPages do not show the last term. For the last one a browser reports an error.
var otherPages = []struct{ name, path string }{
	{"term", "term?number=2"},
	{"what-if", "what-if"},
	{"about", "about"},
	{"not-found", "worker?name=nobody"},
}

// crawl visits every page that links lead to, from an address on, and returns how many there
// are. Each of them must be there, and have a heading, and link to nothing outside of it.
func crawl(p *tab, from string) int {
	p.t.Helper()
	seen, todo := map[string]bool{from: true}, []string{from}
	for n := 0; n < len(todo); n++ {
		require.Less(p.t, n, 1000, "the links have no end: %s", todo[n])
		require.EqualValues(p.t, 200, p.visit(todo[n]), "%s", todo[n])
		if strings.HasPrefix(todo[n], from+"api/") {
			continue
		}
		require.True(p.t, eval[bool](p, `document.querySelector("h1")?.innerText > ""`), "%s has no heading", todo[n])
		require.Empty(p.t, eval[[]string](p, `[...document.links].filter(a => a.hash && a.pathname == location.pathname && a.search == location.search)
			.map(a => a.hash).filter(id => !document.getElementById(decodeURIComponent(id.slice(1))))`), "%s: links to no element", todo[n])
		for _, form := range eval[[]string](p, `[...document.forms].map(f => f.action)`) {
			require.True(p.t, strings.HasPrefix(form, from), "%s has a form for %s", todo[n], form)
		}
		for _, link := range eval[[]string](p, `[...document.links].map(a => a.href)`) {
			require.True(p.t, strings.HasPrefix(link, from), "%s links to %s", todo[n], link)
			if link, _, _ := strings.Cut(link, "#"); !seen[link] {
				seen[link] = true
				todo = append(todo, link)
			}
		}
	}
	return len(todo)
}

// Every link of every page leads to a page below the same prefix, and so do the forms.
func TestD4_Links(t *testing.T) {
	t.Parallel()
	f := small(t)
	for _, prefix := range []string{"", "a/b/", "ops/fleet/"} {
		t.Run("/"+prefix, func(t *testing.T) {
			t.Parallel()
			from := f.url + prefix
			p := open(t, from)
			n := crawl(p, from)
			require.Greater(t, n, 30)
			t.Log(n, "pages")

			p.visit(from)
			p.do(chromedp.SendKeys(chromedp.CSS("header input[name=q]"), "t3\r"))
			p.wait(`location.search.includes("t3") && document.querySelector("h1").innerText.includes("t3")`)
			require.True(t, strings.HasPrefix(eval[string](p, "location.href"), from+"task?"), "a whole name leads to its page")
		})
	}
}

// Without JavaScript each page has the same content: the same elements with the same text,
// but for the ages.
func TestD5_WithoutJavaScript(t *testing.T) {
	t.Parallel()
	f := troubled(t)
	with, without := openNoisy(t), openNoisy(t)
	without.withoutScripts()
	const content = `[...document.querySelectorAll("main, main *")].filter(e => e.checkVisibility() && !e.closest("time"))
		.map(e => e.localName + " " + [...e.childNodes].filter(n => n.nodeType == Node.TEXT_NODE).map(n => n.data.trim()).join(" "))`
	for _, page := range slices.Concat(pages, otherPages) {
		with.visit(f.url + page.path)
		without.visit(f.url + page.path)
		want, got := eval[[]string](with, content), eval[[]string](without, content)
		require.Greater(t, len(want), 3, page.name)
		require.Equal(t, want, got, page.name)
	}
}

// All that a page loads, it loads from below its own address. Nothing in the browser has
// asked for anything else.
func TestD6_NothingFromElsewhere(t *testing.T) {
	t.Parallel()
	f := troubled(t)
	prefix := f.url + "a/b/"
	p := open(t, prefix)
	for _, page := range pages {
		p.visit(prefix + page.path)
		p.wait(`document.readyState == "complete"`)
	}
	require.Greater(t, len(p.requested()), 2*len(pages), "open checks their addresses")
	require.Empty(t, refused())
}

// The proxy records what a page asks of other hosts: otherwise TestD6 could not fail.
func TestD6_OtherHostsAreRecorded(t *testing.T) {
	p := openNoisy(t)
	before := len(refused())
	_ = chromedp.Do(p.ctx, chromedp.Navigate("http://elsewhere.example/"))
	require.Len(t, refused(), before+1)
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	chromium.refused = nil
}

// The console stays empty on each page, and while each page is refreshed. Violations of the
// Content-Security-Policy are reported there.
func TestD8_TheConsoleStaysEmpty(t *testing.T) {
	t.Parallel()
	f := troubled(t)
	first := open(t, f.url)
	var tabs []*tab
	for _, page := range pages {
		p := first.sibling()
		p.visit(f.url + page.path)
		tabs = append(tabs, p)
	}
	f.refresh(tabs...)
	for i, p := range tabs {
		require.Empty(t, p.said(), pages[i].name)
	}
}

// looks are the ways in which pages are checked and pictures taken.
var looks = []struct {
	name   string
	width  int64
	scheme string
}{{"light", 1360, "light"}, {"dark", 1360, "dark"}, {"400", 400, "light"}}

// Axe finds nothing to complain about on any page in any look, and no page is wider than a
// phone. With -browser.pictures the test also takes the pictures.
func TestD7_Accessible(t *testing.T) {
	if *axeFile == "" {
		t.Skip("-browser.axe is missing: .ci/run browser fetches it")
	}
	t.Parallel()
	f := troubled(t)
	for _, look := range looks {
		t.Run(look.name, func(t *testing.T) {
			t.Parallel()
			p := openNoisy(t) // axe is not part of the page
			axe, err := os.ReadFile(*axeFile)
			require.NoError(t, err)
			p.look(look.width, look.scheme)
			for _, page := range slices.Concat(pages, otherPages) {
				p.visit(f.url + page.path)
				if *pictures != "" {
					picture, err := chromedp.Run(p.ctx, chromedp.FullScreenshot(100))
					require.NoError(t, err)
					require.NoError(t, os.MkdirAll(*pictures, 0o755))
					require.NoError(t, os.WriteFile(filepath.Join(*pictures, page.name+"-"+look.name+".png"), picture, 0o644))
				}
				if eval[int64](p, "document.documentElement.scrollWidth") > look.width {
					t.Errorf("%s is wider than the window: %s", page.name, eval[[]string](p, `[...document.querySelectorAll("*")]
						.filter(e => e.getBoundingClientRect().right > document.documentElement.clientWidth).map(e => e.outerHTML.slice(0, 100))`))
				}
				found := eval[[]string](p, string(axe)+`;axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v =>
					v.nodes.map(n => v.impact + " " + v.id + ": " + n.html.slice(0, 200) + " " + n.any.map(c => c.message).join("; "))))`)
				require.Empty(t, found, "%s, %s", page.name, look.name)
			}
		})
	}
}
