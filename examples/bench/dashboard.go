//go:build peers

package main

// The dashboard of a big fleet: what its answers cost, and what it costs the terms.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/history"
)

// dashboardConfig says how the dashboard is measured.
type dashboardConfig struct {
	rounds   int           // of blocks of terms
	block    int           // steady terms, and as many with changes
	interval time.Duration // of terms
	poll     time.Duration // of each tab
	answers  int           // rounds of answers
}

// openTabs is the number of tabs.
const openTabs = 20

// The modes in which terms run.
const (
	alone    = iota // without a dashboard
	recorded        // the dashboard records the terms
	watched         // and has open tabs
	modes
)

// board is what the measurement of the dashboard finds.
type board struct {
	size
	answers       []answerCost
	steady, moves [modes]samples // terms
	recordSteady  samples        // the part of recording in steady terms
	recordMoves   samples        // and in those with changes
	changes       int            // of such a term
	view          float64        // bytes: the cache of one term
	stale         float64        // bytes: the cache of a term that is not the last
	history       float64        // bytes: a full history
}

// answerCost is what answers at an address cost.
type answerCost struct {
	bytes, zipped      int
	first, later       samples   // CPU time: the first request of a term, and a second one
	firstNew, laterNew []float64 // bytes allocated
}

// shown is a fleet with a dashboard.
type shown struct {
	leader
	ring    *history.Ring
	handler *dashboard.Handler
	took    time.Duration // by what OnTerm called last
	joins   int           // workers that have joined
}

// OnTerm implements [dashboard.Source]. It measures the recording.
func (s *shown) OnTerm(f func(*orchestrator.Snapshot[string, string])) (stop func()) {
	return s.Orchestrator.OnTerm(func(snapshot *orchestrator.Snapshot[string, string]) {
		start := time.Now()
		f(snapshot)
		s.took = time.Since(start)
	})
}

func measureDashboard(ctx context.Context, cfg config) (b board, err error) {
	b.size = cfg.big
	cfg.log("dashboard of %s: terms beside open tabs", b.size)
	s := &shown{}
	if s.leader, err = newLeader(ctx, b.even(), false); err != nil {
		return b, err
	}
	if s.ring, err = history.New(); err != nil {
		return b, err
	}
	if s.handler, err = dashboard.New(dashboard.WithHistory(s.ring)); err != nil {
		return b, err
	}
	if err := b.measureTerms(ctx, s, cfg.dashboard); err != nil {
		return b, err
	}
	cfg.log("dashboard of %s: answers", b.size)
	for w := range max(1, b.workers/100) {
		s.RemoveWorker(workerName(b.workers - 1 - w))
	}
	if err := b.measureAnswers(ctx, s, cfg.dashboard.answers); err != nil {
		return b, err
	}
	return b, b.measureMemory(ctx, s)
}

// measureTerms runs blocks of terms in turn: without a dashboard, with one, and with tabs.
func (b *board) measureTerms(ctx context.Context, s *shown, cfg dashboardConfig) error {
	for round := range cfg.rounds {
		for i := range modes {
			if err := b.block(ctx, s, cfg, (i+round)%modes); err != nil {
				return err
			}
		}
	}
	return nil
}

// block runs a block of terms. A worker joins before each second term, and is lost again.
func (b *board) block(ctx context.Context, s *shown, cfg dashboardConfig, mode int) error {
	if mode != alone {
		defer dashboard.Lead(s.handler, s)()
	}
	if mode == watched {
		defer s.openAll(cfg.poll)()
	}
	runtime.GC()
	if err := quietTerm(ctx, s.Orchestrator); err != nil {
		return err
	}
	timed := func(terms *[modes]samples, record *samples) error {
		time.Sleep(time.Duration((0.5 + rand.Float64()) * float64(cfg.interval))) // at any moment between two polls
		start := time.Now()
		err := s.NextTerm(ctx)
		terms[mode] = append(terms[mode], time.Since(start))
		if mode == recorded {
			*record = append(*record, s.took)
		}
		return err
	}
	for n := range cfg.block {
		if err := timed(&b.steady, &b.recordSteady); err != nil {
			return err
		}
		if err := requireQuiet(s.Orchestrator); err != nil {
			return err
		}
		if n%2 == 0 {
			s.joins++
			s.cluster.join(s.joiner())
			if err := s.AddWorker(s.joiner()); err != nil {
				return err
			}
		} else {
			s.RemoveWorker(s.joiner())
			delete(s.cluster.workers, s.joiner())
		}
		if err := timed(&b.moves, &b.recordMoves); err != nil {
			return err
		}
		b.changes = len(s.LastPlan().Changes)
		s.cluster.obey()
		if err := quietTerm(ctx, s.Orchestrator); err != nil {
			return err
		}
	}
	return nil
}

// joiner is the worker that joins and is lost again: another one each time, as in measureTerms.
func (s *shown) joiner() string { return fmt.Sprint("joiner-", s.joins) }

// openAll opens tabs, which ask as the script of the pages does, and returns a function that
// closes them. One of them loads one page after the other, also a what-if plan, and the
// others stay on one of the other pages.
func (s *shown) openAll(poll time.Duration) (closeAll func()) {
	var pages []string
	for _, address := range addresses {
		if !strings.HasPrefix(address, apiPrefix) {
			pages = append(pages, s.resolve(address))
		}
	}
	left := slices.DeleteFunc(slices.Clone(pages), func(page string) bool { return strings.HasPrefix(page, "/what-if?") })
	server := httptest.NewServer(s.handler)
	client := &http.Client{Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: openTabs}}
	ctx, cancel := context.WithCancel(context.Background())
	var tabs sync.WaitGroup
	for tab := range openTabs {
		tabs.Go(func() {
			timer := time.NewTimer(poll * time.Duration(tab) / openTabs)
			defer timer.Stop()
			page, tag := left[tab%len(left)], ""
			for n := 0; ; n++ {
				select {
				case <-ctx.Done():
					return
				case <-timer.C:
				}
				if tab == 0 {
					page, tag = pages[n%len(pages)], ""
				}
				tag = ask(ctx, client, server.URL+page, tag)
				timer.Reset(poll)
			}
		})
	}
	return func() {
		cancel()
		tabs.Wait()
		client.CloseIdleConnections()
		server.Close()
	}
}

// ask loads a page if it has changed since the answer with the tag, and returns its tag.
func ask(ctx context.Context, client *http.Client, url, tag string) string {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return tag
	}
	r.Header.Set("Accept-Encoding", "gzip")
	if tag != "" {
		r.Header.Set("If-None-Match", tag)
	}
	answer, err := client.Do(r)
	if err != nil {
		return tag // the tab was closed
	}
	_, err = io.Copy(io.Discard, answer.Body)
	if err = errors.Join(err, answer.Body.Close()); err != nil || answer.StatusCode != http.StatusOK {
		return tag
	}
	return answer.Header.Get("ETag")
}

const apiPrefix = "api/v1/"

// addresses are those of all pages and routes that read, with as many rows as allowed.
var addresses = []string{
	"", "workers", "worker?name=WORKER", "tasks", "task?name=TASK", "terms", "term?number=TERM", "what-if", "what-if?drain=WORKER", "about",
	"api/v1/status", "api/v1/progress", "api/v1/workers?limit=1000", "api/v1/worker?name=WORKER&limit=1000",
	"api/v1/tasks?limit=1000", "api/v1/tasks?q=42&limit=1000", "api/v1/tasks?waiting=any&limit=1000", "api/v1/task?name=TASK&limit=1000",
	"api/v1/terms?limit=1000", "api/v1/term?number=TERM&limit=1000", "api/v1/changes?limit=1000", "api/v1/settings",
	"api/v1/what-if?drain=WORKER&limit=1000",
}

// resolve returns an address for a worker, a task and a term that exist.
func (s *shown) resolve(address string) string {
	worker := workerName(0)
	task, term := s.cluster.workers[worker].copies[0][0], uint64(1)
	if changes := s.LastPlan().Changes; len(changes) > 0 {
		task = changes[0].Task
	}
	for t := range s.ring.View().Terms(orchestrator.Term{}) {
		term = t.Stats.Term.Number
		break
	}
	return "/" + strings.NewReplacer("WORKER", worker, "TASK", task, "TERM", strconv.FormatUint(term, 10)).Replace(address)
}

// measureAnswers gives each address the first request of a term.
func (b *board) measureAnswers(ctx context.Context, s *shown, rounds int) error {
	defer dashboard.Lead(s.handler, s)()
	b.answers = make([]answerCost, len(addresses))
	for range rounds {
		for i, address := range addresses {
			if err := s.busyTerm(ctx); err != nil {
				return err
			}
			if err := b.answers[i].measure(s.handler, s.resolve(address)); err != nil {
				return err
			}
		}
	}
	return nil
}

// busyTerm runs a term that starts the tasks of workers that are gone. The others acknowledge
// the starts and list no new task, so that each term does it again.
func (s *shown) busyTerm(ctx context.Context) error {
	err := s.NextTerm(ctx)
	for _, w := range s.cluster.workers {
		w.writes = nil
	}
	return err
}

// measure asks three times: compressed, as browsers do, and once not.
func (a *answerCost) measure(h http.Handler, target string) error {
	for n, compressed := range []bool{true, true, false} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.RemoteAddr, r.Host = "127.0.0.1:1", "localhost"
		if compressed {
			r.Header.Set("Accept-Encoding", "gzip")
		}
		w := &discard{header: make(http.Header), status: http.StatusOK}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		start := cpuTime()
		h.ServeHTTP(w, r)
		took := cpuTime() - start
		runtime.ReadMemStats(&after)
		if w.status != http.StatusOK {
			return fmt.Errorf("%s: status %d", target, w.status)
		}
		switch allocated := float64(after.TotalAlloc - before.TotalAlloc); n {
		case 0:
			a.first, a.firstNew = append(a.first, took), append(a.firstNew, allocated)
		case 1:
			a.later, a.laterNew = append(a.later, took), append(a.laterNew, allocated)
			a.zipped = max(a.zipped, w.bytes)
		default:
			a.bytes = max(a.bytes, w.bytes)
		}
	}
	return nil
}

// discard is a ResponseWriter that counts bytes.
type discard struct {
	header        http.Header
	status, bytes int
}

func (d *discard) Header() http.Header    { return d.header }
func (d *discard) WriteHeader(status int) { d.status = status }

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += len(p)
	return len(p), nil
}

// measureMemory measures what the handler keeps of a term, also after another one, and what
// the history has after measureAnswers.
func (b *board) measureMemory(ctx context.Context, s *shown) error {
	stop := dashboard.Lead(s.handler, s)
	without := liveHeap()
	for _, address := range addresses {
		var a answerCost
		if err := a.measure(s.handler, s.resolve(address)); err != nil {
			return err
		}
	}
	b.view = float64(liveHeap() - without)
	if err := s.busyTerm(ctx); err != nil {
		return err
	}
	with := liveHeap()
	stop() // it drops what it keeps of a term
	without = liveHeap()
	b.stale = float64(with - without)
	s.handler, s.ring = nil, nil
	b.history = float64(without - liveHeap())
	runtime.KeepAlive(s)
	return nil
}

func (b board) goals() []goal {
	size, took := figure{}, figure{}
	for i, a := range b.answers {
		size = worstOf([]figure{size, {addresses[i], float64(a.bytes) / 1000}})
		took = worstOf([]figure{took, {addresses[i], float64(ms(a.first.median()))}})
	}
	return []goal{
		atMost("largest page or answer of the dashboard, "+b.String(), "kB", 256, size),
		atMost("slowest page or answer of the dashboard, "+b.String()+", first request of a term", "ms of a core", 300, took),
		atMost(fmt.Sprintf("term with %d open tabs, %s", openTabs, b.size), "× the term with none", 1.1,
			figure{"steady", ratio(b.steady[watched], b.steady[recorded])},
			figure{"with changes", ratio(b.moves[watched], b.moves[recorded])}),
	}
}

func (b board) tables() []table {
	columns := []string{"kB", "kB, gzip", "ms, first of a term", "ms, later", "MB allocated, first", "MB allocated, later"}
	pages, routes := table{Title: "pages", Columns: columns}, table{Title: "API", Columns: columns}
	for i, a := range b.answers {
		to := &pages
		if strings.HasPrefix(addresses[i], apiPrefix) {
			to = &routes
		}
		to.add("/"+addresses[i], number(a.bytes)/1e3, number(a.zipped)/1e3, ms(a.first.median()), ms(a.later.median()),
			number(middle(a.firstNew))/1e6, number(middle(a.laterNew))/1e6)
	}
	terms := table{Title: "terms", Columns: []string{
		"ms, no dashboard", "ms, dashboard", "× none", "ms, 20 open tabs", "× no tabs", "ms of recording",
	}}
	for _, kind := range []struct {
		name   string
		terms  [modes]samples
		record samples
	}{{"steady", b.steady, b.recordSteady}, {fmt.Sprintf("%d changes", b.changes), b.moves, b.recordMoves}} {
		t := kind.terms
		terms.add(kind.name, ms(t[alone].median()), ms(t[recorded].median()), number(ratio(t[recorded], t[alone])),
			ms(t[watched].median()), number(ratio(t[watched], t[recorded])), ms(kind.record.median()))
	}
	memory := table{Title: "live heap", Columns: []string{"MB"}}
	memory.add("the view of the last term", number(b.view)/1e6)
	memory.add("the view of an older term", number(b.stale)/1e6)
	memory.add("the history", number(b.history)/1e6)
	return []table{pages, routes, terms, memory}
}
