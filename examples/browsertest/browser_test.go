//go:build browser

package browsertest

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/f8949c05/orchestrator/internal/proctest"
)

var (
	axeFile  = flag.String("browser.axe", "", "the `file` axe.min.js of axe-core")
	pictures = flag.String("browser.pictures", "", "the `folder` for pictures of the pages")
)

// patience bounds every wait for something that should happen at once. It is long, because
// the tests may run beside others.
const patience = 30 * time.Second

// chromium is the browser of all tests.
var chromium struct {
	start sync.Once
	ctx   context.Context
	err   error
	end   []func()

	mu      sync.Mutex
	refused []string // requests to other hosts
}

func TestMain(m *testing.M) {
	code := m.Run()
	for _, end := range slices.Backward(chromium.end) {
		end()
	}
	http.DefaultClient.CloseIdleConnections()
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// browser returns the browser, which the first test starts. Without one it skips the test.
func browser(t *testing.T) context.Context {
	t.Helper()
	path := proctest.Program(t, "chromium-headless-shell", "chromium-headless-shell", "headless-shell", "chromium", "google-chrome")
	chromium.start.Do(func() { startBrowser(path) })
	require.NoError(t, chromium.err, "start %s", path)
	return chromium.ctx
}

func startBrowser(path string) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		chromium.mu.Lock()
		defer chromium.mu.Unlock()
		chromium.refused = append(chromium.refused, r.Method+" "+r.Host+r.URL.Path)
		w.WriteHeader(http.StatusForbidden)
	}))
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]),
		chromedp.ExecPath(path),
		chromedp.ProxyServer(proxy.URL),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"),
		chromedp.Flag("disable-component-update", true),
		chromedp.WindowSize(1360, 1000),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	allocator, free := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, _ := chromedp.NewContext(allocator)
	chromium.ctx, chromium.err = ctx, chromedp.Do(ctx)
	chromium.end = []func(){proxy.Close, free, func() { _ = chromedp.Cancel(ctx) }}
}

// refused returns the requests to other hosts so far.
func refused() []string {
	chromium.mu.Lock()
	defer chromium.mu.Unlock()
	return slices.Clone(chromium.refused)
}

// tab is a page of the browser, with a profile of its own.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex
	requests []string
	console  []string // messages and exceptions
}

// open opens a tab for a test. When the test ends, it checks that the console is empty (D8)
// and that each request went to an address below prefix (D6).
func open(t *testing.T, prefix string) *tab {
	t.Helper()
	p := openNoisy(t)
	t.Cleanup(func() {
		require.Empty(t, p.said())
		for _, url := range p.requested() {
			require.True(t, strings.HasPrefix(url, prefix), "a request to %s", url)
		}
	})
	return p
}

// openNoisy opens a tab whose console and requests are not checked.
func openNoisy(t *testing.T) *tab {
	t.Helper()
	return newTab(browser(t), t, chromedp.WithNewBrowserContext())
}

// sibling opens another tab with the same profile. Its console and requests are not checked.
func (p *tab) sibling() *tab {
	p.t.Helper()
	return newTab(p.ctx, p.t)
}

func newTab(parent context.Context, t *testing.T, opts ...chromedp.ContextOption) *tab {
	t.Helper()
	p := &tab{t: t}
	ctx, end := chromedp.NewContext(parent, append(opts, chromedp.WithListener(p.hear))...)
	t.Cleanup(end)
	p.ctx = ctx
	p.do() // opens it; it lives as long as this context, which has no timeout
	call(p, network.Enable, network.EnableParams{})
	return p
}

// hear records what the page does. It must not block.
func (p *tab) hear(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventConsoleAPICalled:
		p.console = append(p.console, fmt.Sprint("console.", e.Type))
	case *runtime.EventExceptionThrown:
		p.console = append(p.console, e.ExceptionDetails.Text+" "+e.ExceptionDetails.URL)
	case *log.EventEntryAdded:
		p.console = append(p.console, e.Entry.Text+" "+e.Entry.URL)
	}
}

// said returns what is in the console.
func (p *tab) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.console)
}

// requested returns the addresses of all requests.
func (p *tab) requested() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// do runs actions. Each has to end in time.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	require.NoError(p.t, chromedp.Do(p.ctx, actions...))
}

// visit navigates to an address, and returns the status of the answer.
func (p *tab) visit(url string) int64 {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	answer, err := chromedp.RunResponse(ctx, chromedp.Navigate(url))
	require.NoError(p.t, err, "%s", url)
	return answer.Status
}

// wait waits until a JavaScript expression is true, in whatever page the tab then shows.
func (p *tab) wait(expression string) {
	p.t.Helper()
	var last error
	until(p.t, func() bool {
		var ok bool
		ok, last = chromedp.Run(p.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
		return ok
	}, func() string { return fmt.Sprintln(expression, last, eval[string](p, "document.body.innerText")) })
}

// eval returns the value of a JavaScript expression. It waits for a promise.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, patience)
	defer cancel()
	v, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	require.NoError(p.t, err, "%.200s", expression)
	return v
}

// call calls a command of the DevTools protocol.
func call[P, R any](p *tab, command cdp.Command[P, R], params P) R {
	p.t.Helper()
	result, err := chromedp.Call(p.ctx, command, params)
	require.NoError(p.t, err)
	return result
}

// look sets the width of the window, and the colour scheme: light or dark.
func (p *tab) look(width int64, scheme string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, 1000))
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}},
	})
}

// withoutScripts disables JavaScript in pages that are visited from now on.
func (p *tab) withoutScripts() {
	p.t.Helper()
	call(p, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
}
