//go:build browser

package browsertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// shownTerm is the number of the term that a page shows.
const shownTerm = `Number(document.querySelector("main").innerText.match(/term\s+([\d,]+)/i)?.[1].replaceAll(",", ""))`

// refresh runs a term, and waits until all tabs show it.
func (f *fleet[W, T]) refresh(tabs ...*tab) {
	f.t.Helper()
	f.term(1)
	for _, p := range tabs {
		p.wait(fmt.Sprintf("%s == %d", shownTerm, f.LastPlan().Stats.Term.Number))
	}
}

// A refresh keeps the focus, open details, the scroll position, and what is typed.
func TestD9_RefreshKeeps(t *testing.T) {
	t.Parallel()
	f := troubled(t)
	p := open(t, f.url)
	p.look(1360, "light")

	t.Run("focus of a link", func(*testing.T) {
		p.visit(f.url)
		p.do(chromedp.Focus(chromedp.CSS(`main a[href="worker?name=worker-07"]`)))
		f.refresh(p)
		require.Equal(t, "worker?name=worker-07", eval[string](p, `document.activeElement.getAttribute("href") ?? ""`))
	})
	t.Run("scroll", func(t *testing.T) {
		p.visit(f.url)
		eval[any](p, `scrollTo(0, 300)`)
		// If what is above it grows by a line, the browser scrolls by as much.
		const shown = `Math.round([...document.querySelectorAll("main h2")].find(h => h.textContent == "Load").getBoundingClientRect().top)`
		want := eval[int](p, shown)
		f.refresh(p)
		require.InDelta(t, want, eval[int](p, shown), 1)
	})
	t.Run("search", func(t *testing.T) {
		p.visit(f.url)
		p.do(chromedp.SendKeys(chromedp.CSS("header input[name=q]"), "tenant-0"))
		f.refresh(p)
		p.do(chromedp.KeyEvent("07"))
		require.Equal(t, "tenant-007", eval[string](p, `document.activeElement.value`))
	})
	t.Run("what is typed into a form of the page", func(t *testing.T) {
		p.visit(f.url + "what-if?drain=worker-04")
		p.do(chromedp.Focus(chromedp.CSS(`main form input[type=text][name=drain]`)), chromedp.KeyEvent("worker-0"))
		f.refresh(p)
		p.do(chromedp.KeyEvent("7"))
		require.Equal(t, "worker-07", eval[string](p, `document.activeElement.value`))
	})
	t.Run("details", func(t *testing.T) {
		for _, path := range []string{"", "worker?name=worker-03", "task?name=poison", "term?number=2", "what-if?drain=worker-07"} {
			p.visit(f.url + path)
			if eval[bool](p, `!document.querySelector("main details")`) {
				continue
			}
			const states = `[...document.querySelectorAll("main details")].map(d => d.open)`
			eval[any](p, `document.querySelectorAll("main details").forEach(d => d.open = !d.open)`)
			want := eval[[]bool](p, states)
			f.refresh(p)
			require.Equal(t, want, eval[[]bool](p, states), path)
		}
	})
}

// An open page shows a term within 3 s of its end. The first term ends just after the page has
// asked, which is the worst moment. The machine may be slow now and then, so the best of five
// counts.
func TestD11_WithinThreeSeconds(t *testing.T) {
	t.Parallel()
	f := small(t)
	p := open(t, f.url)
	p.visit(f.url)
	best := time.Hour
	for range 5 {
		before := f.requests()
		until(t, func() bool { return f.requests() > before })
		began := time.Now()
		f.refresh(p)
		if best = min(best, time.Since(began)); best < 3*time.Second {
			return
		}
	}
	t.Fatalf("a term is shown only after %v", best)
}

// A hidden page asks for nothing. When it is seen again it goes on.
func TestD11_HiddenPagesAreSilent(t *testing.T) {
	t.Parallel()
	f := small(t)
	p := open(t, f.url)
	p.visit(f.url)
	f.refresh(p)
	// After frozen and active, the page is hidden, and its timers run.
	call(p, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateFrozen})
	call(p, page.SetWebLifecycleState, page.SetWebLifecycleStateParams{State: page.SetWebLifecycleStateStateActive})
	require.True(t, eval[bool](p, `document.hidden`))
	before := f.requests()
	eval[any](p, `new Promise(done => setTimeout(done, 7000))`)
	require.LessOrEqual(t, f.requests(), before+1, "one may have been under way")
	call(p, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
	require.False(t, eval[bool](p, `document.hidden`))
	f.refresh(p)
}

// Twenty tabs of one browser all follow the terms: none waits for the connections of others.
func TestD11_TwentyTabs(t *testing.T) {
	t.Parallel()
	f := small(t)
	first := open(t, f.url)
	tabs := []*tab{first}
	for range 19 {
		tabs = append(tabs, first.sibling())
	}
	for _, p := range tabs {
		p.visit(f.url)
	}
	for range 3 {
		f.refresh(tabs...)
	}
}

// After 10 s without an answer the page says so, and goes on when the leader is back.
func TestD12_ServerGone(t *testing.T) {
	t.Parallel()
	f := small(t)
	p := openNoisy(t) // requests fail
	p.visit(f.url)
	f.refresh(p)
	const said = `document.body.innerText.includes("no word from the leader")`
	require.False(t, eval[bool](p, said))
	began := time.Now()
	f.gone.Store(true)
	p.wait(said)
	require.Greater(t, time.Since(began), 7*time.Second)
	f.gone.Store(false)
	f.term(1)
	p.wait("!" + said)
	f.refresh(p)
}

// A worker is drained from the page that says what that would do: the verdict comes true, and
// the worker's page follows until it is empty. Then the drain ends on that page.
func TestD16_DrainFromWhatIf(t *testing.T) {
	t.Parallel()
	f := newFleet[string, string](t, []string{"w1", "w2", "w3"})
	for i := range 6 {
		require.NoError(t, f.AddTask(fmt.Sprint("t", i)))
	}
	f.term(1)
	p := open(t, f.url)
	// The page replaces its main part while it follows, so one script finds the element and clicks.
	click := func(selector string) {
		p.wait("document.querySelector(`" + selector + "`)")
		eval[bool](p, "document.querySelector(`"+selector+"`).click() || true")
	}
	press := func(answer string) {
		click(`main form[action="drain"] button`)
		p.wait(`location.pathname == "/worker" && document.querySelector("main").innerText.includes("` + answer + `")`)
	}
	const text = `document.querySelector("main").innerText`
	p.visit(f.url + "worker?name=w2")
	click(`main a[href="what-if?drain=w2"]`)
	p.wait(text + `.includes("The next term would move 2 instances, with the fewest starts possible; each open worker would have 3 tasks.")`)
	require.Equal(t, "Drain it", eval[string](p, `document.querySelector("main form[action=drain] button").innerText`))
	require.Empty(t, f.LastPlan().Changes[6:], "nothing was changed")

	press("The drain was accepted.")
	f.refresh(p)
	p.wait(text + `.includes("It has no tasks.") && ` + text + `.includes("It drains:") && !` + text + `.includes("accepted")`)
	require.Len(t, f.LastPlan().Changes, 2)
	p.visit(f.url)
	require.Equal(t, "All 6 instances run. 1 draining worker is empty.", eval[string](p, `document.querySelector("h1").innerText`))

	p.visit(f.url + "worker?name=w2")
	press("The end of the drain was accepted.")
	f.refresh(p)
	p.wait(text + `.includes("2 tasks") && !` + text + `.includes("drain was accepted")`)
	require.False(t, eval[bool](p, text+`.includes("It drains:")`))
}
