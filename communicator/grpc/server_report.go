package grpc

// The reports of a worker, and their pages.

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/peer"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// Report returns the worker's tasks, or only the version if the caller knows it. If
// the worker has seen a higher epoch than the call's, Report returns only that term.
func (s *service) Report(ctx context.Context, r *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	if err := peer.MayCommand(ctx); err != nil {
		return nil, err
	}
	version, tasks, from, err := s.report(ctx, r)
	if errors.Is(err, orchestrator.ErrDeposed) {
		return &orchestratorv1.ReportResponse{Term: s.laterThan(r.GetTerm())}, nil
	}
	if err != nil {
		return nil, refusal(err)
	}
	page := tasks[from:]
	if r.GetPage() != nil {
		page = firstPage(page, min(int(r.GetPage().GetBytes()), s.maxMessage))
	}
	more := from+uint64(len(page)) < uint64(len(tasks))
	s.kept.keep(version, tasks, more)
	response := &orchestratorv1.ReportResponse{
		Version: &orchestratorv1.Version{Incarnation: version.Incarnation, Counter: version.Counter},
		Tasks:   reported(page, int(int64(s.maxMessage)/4*int64(len(page))/int64(max(len(tasks), 1)))), More: more,
	}
	if seen := s.worker.Seen(); r.GetTerm() != nil && seen.Epoch == r.GetTerm().GetEpoch() && seen.Number > r.GetTerm().GetNumber() {
		response.LaterNumber = seen.Number
	}
	return response, nil
}

// report returns the report of which a page is requested, and the index at which the page
// begins.
func (s *service) report(ctx context.Context, r *orchestratorv1.ReportRequest) (v wire.Version, tasks []worker.TaskStatus[string], from uint64, err error) {
	v.Incarnation = r.GetIncarnation()
	if reading := r.GetPage().GetVersion(); reading.GetIncarnation() == v.Incarnation && s.worker.Incarnation() == v.Incarnation {
		// The first page has raised the fence, and has told the worker what the caller sees.
		if s.laterThan(r.GetTerm()) != nil {
			return v, nil, 0, orchestrator.ErrDeposed
		}
		v.Counter = reading.GetCounter()
		if tasks := s.kept.find(v); r.GetPage().GetFrom() < uint64(len(tasks)) {
			return v, tasks, r.GetPage().GetFrom(), nil
		}
	}
	known := r.GetKnown()
	if known.GetIncarnation() != v.Incarnation {
		known = nil
	}
	v.Counter, tasks, err = s.worker.Report(callContext(ctx, r.GetTerm(), v.Incarnation), known.GetCounter())
	return v, tasks, 0, err
}

// firstPage returns the first of some tasks: as many as fit into so many bytes, and at
// least one.
func firstPage(tasks []worker.TaskStatus[string], bytes int) []worker.TaskStatus[string] {
	const ofFailure, ofAnswer = 68 + wire.MaxErrorText, 64
	size := ofAnswer
	for i := range tasks {
		size += sizeOf(tasks[i].Task, tasks[i].Receipt)
		if tasks[i].Attempts > 0 {
			size += ofFailure
		}
		if size > bytes && i > 0 {
			return tasks[:i]
		}
	}
	return tasks
}

// sizeOf returns the most bytes that a task takes in a report, without a failure.
func sizeOf(task, receipt string) int { return 68 + len(task) + len(receipt) }

// room decides which tasks of one call make the report too long to be read. It leaves one
// message for failures, whose texts take a quarter of it.
type room struct {
	s     *service
	added int64           // bytes of the call's tasks
	has   map[string]bool // the worker's tasks; nil: not needed yet
}

// take reports whether there is room for a task.
func (r *room) take(task, receipt string) bool {
	most, size := int64(wire.MaxPages-1)*int64(r.s.maxMessage), int64(sizeOf(task, receipt))
	if now := r.s.size.Add(size); now > most && r.has == nil {
		r.has, now = make(map[string]bool), r.added+size
		for _, t := range r.s.worker.Status() {
			r.has[t.Task] = true
			now += int64(sizeOf(t.Task, t.Receipt))
		}
		r.s.size.Store(now)
	}
	if r.s.size.Load() > most && !r.has[task] {
		r.s.size.Add(-size)
		return false
	}
	r.added += size
	return true
}

// keptReports are the reports that are read in pages.
type keptReports struct {
	mu  sync.Mutex
	all []keptReport // the latest last; at most mostKept
}

type keptReport struct {
	version wire.Version
	tasks   []worker.TaskStatus[string]
}

// mostKept suffices for a leader, its predecessor, and a dry run of each.
const mostKept = 4

// find returns the tasks of a report; nil if it is not kept.
func (k *keptReports) find(v wire.Version) []worker.TaskStatus[string] {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.all {
		if r.version == v {
			return r.tasks
		}
	}
	return nil
}

// keep keeps a report if there is more to read of it, and otherwise forgets it.
func (k *keptReports) keep(v wire.Version, tasks []worker.TaskStatus[string], more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.all = slices.DeleteFunc(k.all, func(r keptReport) bool { return r.version == v })
	if more {
		k.all = append(k.all, keptReport{v, tasks})
		k.all = slices.Delete(k.all, 0, max(len(k.all)-mostKept, 0))
	}
}

// reported converts tasks to messages, all in one allocation, with their names and
// receipts in another. The errors of failed tasks take at most room bytes in all.
func reported(tasks []worker.TaskStatus[string], room int) []*orchestratorv1.Task {
	if len(tasks) == 0 {
		return nil
	}
	length := 0
	failing := 0
	for i := range tasks {
		length += len(tasks[i].Task) + len(tasks[i].Receipt)
		if tasks[i].Attempts > 0 {
			failing++
		}
	}
	longest := min(wire.MaxErrorText, room/max(failing, 1))
	text := make([]byte, 0, length)
	keep := func(s string) []byte {
		from := len(text)
		text = append(text, s...)
		return text[from:len(text):len(text)]
	}
	messages := make([]orchestratorv1.Task, len(tasks))
	list := make([]*orchestratorv1.Task, len(tasks))
	for i := range tasks {
		m := &messages[i]
		m.Name, m.Receipt = keep(tasks[i].Task), keep(tasks[i].Receipt)
		m.Pinned = tasks[i].Pinned
		m.Failure = wire.FailureOf(tasks[i].Err, tasks[i].Attempts, tasks[i].Failing, tasks[i].Next, longest)
		m.Since = wire.TimeOf(tasks[i].Since)
		m.State = orchestratorv1.State(tasks[i].State)
		m.ContentVersion = tasks[i].Version
		list[i] = m
	}
	return list
}
