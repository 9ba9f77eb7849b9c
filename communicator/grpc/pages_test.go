package grpc

// R7: reports in pages.

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"github.com/f8949c05/orchestrator/worker"
)

// smallest is the option with which reports are short.
func smallest() Option { return WithMaxMessage(2 * grpctest.Mebi) }

// A worker whose report exceeds a message is listed.
func TestR7_NoNumberOfTasksSilencesAWorker(t *testing.T) {
	for what, c := range map[string]struct{ n, length int }{
		"two pages":   {4_000, 900},
		"three pages": {6_000, 900},
	} {
		t.Run(what, func(t *testing.T) {
			s := newServedWorker(t, smallest())
			comm, w := connected(t, s, smallest())
			var want []string
			var changes []worker.Change[string]
			for i := range c.n {
				want = append(want, fmt.Sprintf("%0*d", c.length, i))
				changes = append(changes, worker.Change[string]{Write: orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: want[i]}})
			}
			for _, err := range s.worker.ApplyWith(inTerm(t, 1), changes) {
				require.NoError(t, err)
			}
			for range 2 {
				got, err := comm.List(inTerm(t, 2), w)
				require.NoError(t, err)
				slices.Sort(got)
				require.True(t, slices.Equal(want, got), "%d tasks, want %d", len(got), len(want))
			}
			require.NoError(t, s.worker.Remove(inTerm(t, 3), want[0]))
			got, err := comm.List(inTerm(t, 3), w)
			require.NoError(t, err)
			require.Len(t, got, len(want)-1)
			require.NoError(t, s.worker.Stop(t.Context()))
		})
	}
}

// A worker rejects what would make its report too long to be read, so it is always listed. A
// task that it has is no new one, and one that has stopped makes room.
func TestR7_AWorkerHasRoomForWhatItCanReport(t *testing.T) {
	s := newServedWorker(t, smallest())
	comm, w := connected(t, s, smallest())
	const length, most = 1000, 7 * 2 * grpctest.Mebi / (1000 + 68)
	var want []string
	var writes []orchestrator.Write[string]
	for i := range most + 500 {
		want = append(want, fmt.Sprintf("%0*d", length, i))
		writes = append(writes, orchestrator.Write[string]{Op: orchestrator.OpAdd, Task: want[i]})
	}
	for i, err := range comm.Apply(inTerm(t, 1), w, writes) {
		if i < most {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, orchestrator.ErrRejected)
			require.ErrorContains(t, err, "no room")
		}
	}
	got, err := comm.List(inTerm(t, 2), w)
	require.NoError(t, err)
	require.Equal(t, most, len(got)) //nolint:testifylint // the names would fill megabytes
	require.NoError(t, comm.Add(inTerm(t, 2), w, want[0]))
	require.ErrorIs(t, comm.Add(inTerm(t, 2), w, want[most]), orchestrator.ErrRejected)
	require.NoError(t, comm.Remove(inTerm(t, 2), w, want[0]))
	require.NoError(t, comm.Add(inTerm(t, 2), w, want[most]))
	require.NoError(t, s.worker.Stop(t.Context()))
}

// A caller that does not read pages gets the whole report or an error, never a part.
func TestR6_AnOlderManagerNeverGetsAPart(t *testing.T) {
	s := newServedWorker(t)
	for i := range 10 {
		require.NoError(t, s.worker.Add(inTerm(t, 1), fmt.Sprint("task", i)))
	}
	service := &service{worker: s.worker, maxMessage: 100}
	r, err := service.Report(local(t), &orchestratorv1.ReportRequest{Incarnation: s.worker.Incarnation()})
	require.NoError(t, err)
	require.Len(t, r.GetTasks(), 10)
	require.False(t, r.GetMore())
}

// pageOf requests a page of at most so many bytes.
func pageOf(t *testing.T, s *service, bytes uint32, before *orchestratorv1.ReportResponse, from int) *orchestratorv1.ReportResponse {
	t.Helper()
	r, err := s.Report(local(t), &orchestratorv1.ReportRequest{
		Term: &orchestratorv1.Term{Epoch: 5, Number: 1}, Incarnation: s.worker.Incarnation(),
		Page: &orchestratorv1.Page{Bytes: bytes, Version: before.GetVersion(), From: uint64(from)},
	})
	require.NoError(t, err)
	return r
}

func namesOf(r *orchestratorv1.ReportResponse) (names []string) {
	for _, task := range r.GetTasks() {
		names = append(names, string(task.GetName()))
	}
	return names
}

// All pages are of the moment of the first, whatever happens between them.
func TestR7_ThePagesOfAReportAreOfOneMoment(t *testing.T) {
	served := newServedWorker(t)
	s := &service{worker: served.worker, maxMessage: grpctest.Mebi}
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, s.worker.Add(inTerm(t, 1), name))
	}
	first := pageOf(t, s, 1, nil, 0)
	require.Equal(t, []string{"a"}, namesOf(first))
	require.True(t, first.GetMore())
	require.NoError(t, s.worker.Remove(inTerm(t, 1), "b"))
	require.NoError(t, s.worker.Add(inTerm(t, 1), "d"))
	another := pageOf(t, s, 1, nil, 0)
	require.NotEqual(t, first.GetVersion().GetCounter(), another.GetVersion().GetCounter())

	second := pageOf(t, s, 1, first, 1)
	require.Equal(t, []string{"b"}, namesOf(second))
	require.Equal(t, []string{"b"}, namesOf(pageOf(t, s, 1, first, 1)), "it may be requested again")
	last := pageOf(t, s, 200, first, 2)
	require.Equal(t, []string{"c"}, namesOf(last))
	require.False(t, last.GetMore())
	require.Equal(t, []string{"c", "d"}, namesOf(pageOf(t, s, 300, another, 1)))
	require.Empty(t, s.kept.all, "both were read to their ends")

	over := pageOf(t, s, 300, first, 2)
	require.Equal(t, []string{"a", "c", "d"}, namesOf(over), "it is forgotten, so a new one begins")
	require.NotEqual(t, first.GetVersion().GetCounter(), over.GetVersion().GetCounter())
}

// Reports that nobody goes on reading take the memory of four.
func TestR7_AbandonedReportsAreForgotten(t *testing.T) {
	served := newServedWorker(t)
	s := &service{worker: served.worker, maxMessage: grpctest.Mebi}
	require.NoError(t, s.worker.Add(inTerm(t, 1), "a"))
	require.NoError(t, s.worker.Add(inTerm(t, 1), "b"))
	var all []*orchestratorv1.ReportResponse
	for i := range 10 {
		require.NoError(t, s.worker.Add(inTerm(t, 1), fmt.Sprint("more", i)))
		all = append(all, pageOf(t, s, 1, nil, 0))
		require.LessOrEqual(t, len(s.kept.all), mostKept)
	}
	require.Equal(t, []string{"b"}, namesOf(pageOf(t, s, 1, all[6], 1)), "the fourth to last")
	require.Equal(t, []string{"a"}, namesOf(pageOf(t, s, 1, all[5], 1)), "the fifth to last is begun anew")
	for _, from := range []int{2_000_000_000, 12} {
		require.Equal(t, "a", namesOf(pageOf(t, s, 1, all[9], from))[0], "there is no such page")
	}
}

// The next page of a report is refused like the first: to a caller of an earlier epoch,
// and for another incarnation.
func TestR7_EachPageIsFenced(t *testing.T) {
	served := newServedWorker(t)
	s := &service{worker: served.worker, maxMessage: grpctest.Mebi}
	require.NoError(t, s.worker.Add(inTerm(t, 1), "a"))
	require.NoError(t, s.worker.Add(inTerm(t, 1), "b"))
	first := pageOf(t, s, 1, nil, 0)
	s.worker.Fence(orchestrator.Term{Epoch: 6, Number: 1})
	late := pageOf(t, s, 1, first, 1)
	require.Empty(t, late.GetTasks())
	require.Equal(t, uint64(6), late.GetTerm().GetEpoch())

	own := s.worker.Incarnation()
	s.worker.EndLease(context.Canceled)
	require.NoError(t, s.worker.Rejoin(t.Context()))
	_, err := s.Report(local(t), &orchestratorv1.ReportRequest{
		Term: &orchestratorv1.Term{Epoch: 7, Number: 1}, Incarnation: own,
		Page: &orchestratorv1.Page{Bytes: 1, Version: first.GetVersion(), From: 1},
	})
	require.ErrorContains(t, err, "another incarnation")
}

// What a Communicator makes of the pages of a worker that breaks the protocol.
func TestR7_ImpossiblePages(t *testing.T) {
	version := func(incarnation, counter uint64) *orchestratorv1.Version {
		return &orchestratorv1.Version{Incarnation: incarnation, Counter: counter}
	}
	page := func(v *orchestratorv1.Version, more bool, names ...string) *orchestratorv1.ReportResponse {
		r := grpctest.ReportOf(1, names...)
		r.Version, r.More = v, more
		return r
	}
	for name, c := range map[string]struct {
		answer func(call int) *orchestratorv1.ReportResponse
		says   string // "": the tasks are listed
		tasks  []string
	}{
		"two pages": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				return page(version(1, 1), call == 0, fmt.Sprint("t", call))
			},
			tasks: []string{"t0", "t1"},
		},
		"begun anew": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				return page(version(1, uint64(1+call/2)), call < 3, fmt.Sprint("t", call))
			},
			tasks: []string{"t2", "t3"},
		},
		"the pages of two incarnations": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				return page(version(uint64(1+call%2), 1), call < 3, fmt.Sprint("t", call))
			},
			says: "report has version 2.1",
		},
		"always another version": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				return page(version(1, uint64(1+call)), true, fmt.Sprint("t", call))
			},
			says: "begun anew",
		},
		"the same page for ever": {
			answer: func(int) *orchestratorv1.ReportResponse {
				return page(version(1, 1), true, slices.Repeat([]string{strings.Repeat("x", 1000)}, 100)...)
			},
			says: "exceeds 8 times WithMaxMessage",
		},
		"a page without a task": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				if call == 0 {
					return page(version(1, 1), true, "t")
				}
				return page(version(1, 1), true)
			},
			says: "page of a report has no task",
		},
		"a task in two pages": {
			answer: func(call int) *orchestratorv1.ReportResponse { return page(version(1, 1), call == 0, "t") },
			says:   "lists 1 tasks twice",
		},
		"no end": {
			answer: func(call int) *orchestratorv1.ReportResponse {
				if call == 0 {
					return page(version(1, 1), true, "t")
				}
				return nil
			},
			says: "no more",
		},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			calls := 0
			f := &grpctest.Fake{OnReport: func(*orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
				mu.Lock()
				defer mu.Unlock()
				calls++
				if r := c.answer(calls - 1); r != nil {
					return r, nil
				}
				return nil, fmt.Errorf("no more")
			}}
			comm, w := impostor(t, f, smallest())
			names, err := comm.List(inTerm(t, 1), w)
			if c.says != "" {
				require.ErrorContains(t, err, c.says)
				require.Empty(t, names)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.tasks, names)
		})
	}
}

// No answer is longer than requested, with errors and names of any length.
func TestR7_PagesFit(t *testing.T) {
	var tasks []worker.TaskStatus[string]
	for i := range 3000 {
		s := worker.TaskStatus[string]{Task: fmt.Sprintf("%0*d", 1+i%900, i), Receipt: strings.Repeat("r", i%64), Pinned: true, State: worker.Failed, Version: -1}
		if i%3 == 0 {
			s.Attempts, s.Err = 1<<31, fmt.Errorf("%0*d", i, i)
		}
		tasks = append(tasks, s)
	}
	for _, bytes := range []int{1, 100, 2_000, 100_000} {
		n := 0
		for rest := tasks; len(rest) > 0; {
			page := firstPage(rest, bytes)
			r := &orchestratorv1.ReportResponse{
				Version: &orchestratorv1.Version{Incarnation: 1 << 63, Counter: 1 << 63}, Tasks: reported(page, grpctest.Mebi), More: true,
			}
			if size := len(grpctest.Marshaled(t, r)); len(page) > 1 {
				require.LessOrEqual(t, size, bytes)
				require.LessOrEqual(t, len(page), bytes/wire.LeastTask)
			}
			rest = rest[len(page):]
			n += len(page)
		}
		require.Equal(t, len(tasks), n)
	}
}
