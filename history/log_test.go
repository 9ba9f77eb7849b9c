package history_test

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/history"
)

// shown is what a view shows.
type shown struct {
	Terms   []history.Term
	Quiet   []history.Quiet // that followed each of them
	Changes []history.Repeated
	Loads   map[string][]history.Load
	Events  map[string][]history.WorkerEvent
	Gaps    map[string]time.Duration
	Counts  history.Counts
	Last    orchestrator.Term
	Workers []history.WorkerRow
}

// show returns what a view shows of some workers and tasks.
func show(v *history.View, workers, tasks []string) shown {
	s := shown{
		Loads: make(map[string][]history.Load), Events: make(map[string][]history.WorkerEvent),
		Gaps: make(map[string]time.Duration), Counts: v.Counts(), Workers: v.Workers(),
	}
	for t, quiet := range v.Terms(orchestrator.Term{}) {
		s.Terms, s.Quiet = append(s.Terms, t.Shown()), append(s.Quiet, quiet)
	}
	s.Changes, _ = v.Repeated(history.Filter{}, history.Position{}, 1<<30)
	for _, w := range workers {
		s.Loads[w] = v.Load(w)
		for _, e := range v.Events(w) {
			s.Events[w] = append(s.Events[w], *e)
		}
	}
	for _, task := range tasks {
		s.Gaps[task] = v.LongestGap(task)
	}
	s.Last, _ = v.Last()
	return s
}

var (
	workers = []string{"w1", "w2", "w3", "w4", "w5\n<b>", "w\xff6"}
	tasks   = []string{"a", "b", "c", "d", "e", "f", "g", "h", "\u2028", strings.Repeat("long", 200), "bad\xfe"}
)

// live makes random changes and faults, and runs terms, most of them quiet.
func (f *fleet) live(random *rand.Rand, terms int) {
	f.t.Helper()
	pick := func(names []string) string { return names[random.IntN(len(names))] }
	for range terms {
		switch worker, task := pick(workers), pick(tasks); random.IntN(16) {
		case 0:
			f.Cut(worker)
		case 1:
			f.Hang(worker)
		case 2, 3, 4:
			f.Heal()
			f.Refuse(nil)
		case 5:
			_ = f.DrainWorker(worker) // it may be removed
		case 6:
			_ = f.UndrainWorker(worker)
		case 7:
			f.RemoveWorker(worker)
		case 8, 9:
			require.NoError(f.t, f.AddWorker(worker))
		case 10:
			f.RemoveTask(task)
		case 11, 12:
			require.NoError(f.t, f.AddTask(task, orchestrator.WithTaskInstances(1+random.IntN(2))))
		case 13:
			f.Refuse(func(op orchestrator.Op, w, t string) error {
				if op != orchestrator.OpList && (w == worker || t == task) {
					return errors.New("no disk \xff")
				}
				return nil
			})
		case 14:
			f.Kill(worker)
			f.Start(worker)
		case 15:
			if random.IntN(4) == 0 {
				f.lead()
			}
		}
		f.terms(random.IntN(4))
	}
}

func logged(path string, opts ...history.Option) func() (*history.Ring, error) {
	return func() (*history.Ring, error) { return history.New(append(opts, history.WithFile(path, 0, 0))...) }
}

// TestD19_ReplayShowsTheSame checks that a log shows what the ring showed, for random
// histories, also after the bounds of both have dropped terms.
func TestD19_ReplayShowsTheSame(t *testing.T) {
	for seed := range uint64(6) {
		for _, opts := range [][]history.Option{nil, {history.WithTerms(20), history.WithChanges(30)}} {
			t.Run(fmt.Sprint(seed, "/", len(opts)), func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "log")
				inBubble(t, logged(path, opts...), workers, tasks, func(t *testing.T, f *fleet) {
					f.live(rand.New(rand.NewPCG(seed, 19)), 100)
					require.NoError(t, f.ring.Close())
					live := show(f.ring.View(), workers, tasks)
					replayed, err := history.Open(path, opts...)
					require.NoError(t, err)
					require.Empty(t, replayed.Notes())
					require.Equal(t, live, show(replayed.View(), workers, tasks))
					if opts == nil {
						require.Greater(t, len(live.Terms), 20)
						require.NotZero(t, live.Counts.Quiet)
					} else {
						require.Len(t, live.Terms, 20)
						require.LessOrEqual(t, live.Counts.Changes+live.Counts.Events, 30)
					}
				})
			})
		}
	}
}

// TestD19_AfterRotation checks the terms that are left in a log whose first files are gone:
// they have the same changes and loads.
func TestD19_AfterRotation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	const most = 20_000
	ring := func() (*history.Ring, error) { return history.New(history.WithFile(path, most, 3)) }
	inBubble(t, ring, workers, tasks, func(t *testing.T, f *fleet) {
		f.live(rand.New(rand.NewPCG(7, 19)), 300)
		require.NoError(t, f.ring.Close())
		for _, name := range []string{"log", "log.1", "log.2"} {
			info, err := os.Stat(filepath.Join(filepath.Dir(path), name))
			require.NoError(t, err)
			require.LessOrEqual(t, info.Size(), int64(most))
			require.EqualValues(t, 0o600, info.Mode())
		}
		require.NoFileExists(t, path+".3")
		replayed, err := history.Open(path)
		require.NoError(t, err)
		require.Empty(t, replayed.Notes())

		all, kept := show(f.ring.View(), workers, tasks), show(replayed.View(), workers, tasks)
		n := len(kept.Terms)
		require.Greater(t, n, 10)
		require.Less(t, n, len(all.Terms))
		require.Equal(t, all.Terms[:n], kept.Terms)
		require.Equal(t, all.Quiet[:n], kept.Quiet)
		require.Equal(t, all.Workers, kept.Workers)
		require.Equal(t, all.Last, kept.Last)
		first := kept.Terms[n-1].Stats
		for _, w := range workers {
			var since []history.Load // of all.Loads, since the first term that is left
			for _, l := range all.Loads[w] {
				if l.Time.Before(first.Start) {
					l.Term, l.Time = first.Term, first.Start
				}
				if n := len(since); n > 0 && since[n-1].Term == l.Term {
					since = since[:n-1]
				}
				since = append(since, l)
			}
			got := kept.Loads[w]
			if len(since) > 0 && since[0].Term == first.Term && since[0].Tasks == 0 && !slices.Equal(since, got) {
				since = since[1:] // the log does not know of workers that were removed before
				if len(got) > 0 && got[0].Tasks == 0 {
					got = got[1:] // and that are back
				}
			}
			require.Equal(t, since, got, w)
		}
	})
}

// TestD19_AnotherProcess appends to the log of an earlier process, which was killed while it
// wrote a line.
func TestD19_AnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	var first, second shown
	inBubble(t, logged(path), workers, tasks, func(t *testing.T, f *fleet) {
		f.live(rand.New(rand.NewPCG(1, 1)), 30)
		require.NoError(t, f.ring.Close())
		first = show(f.ring.View(), workers, tasks)
	})
	cutFile(t, path, 7)
	inBubble(t, logged(path), workers[:3], tasks, func(t *testing.T, f *fleet) {
		f.terms(3)
		require.NoError(t, f.ring.Close())
		second = show(f.ring.View(), workers, tasks)
	})
	replayed, err := history.Open(path)
	require.NoError(t, err)
	require.Len(t, replayed.Notes(), 1)
	require.Contains(t, replayed.Notes()[0], "damaged, left out")
	both := show(replayed.View(), workers, tasks)
	require.Equal(t, second.Terms, both.Terms[:len(second.Terms)])
	require.Equal(t, second.Workers, both.Workers)
	before := both.Terms[len(second.Terms):]
	require.GreaterOrEqual(t, len(before), len(first.Terms)-1)
	require.Equal(t, first.Terms[len(first.Terms)-len(before):], before)
}

// cutFile removes the last bytes of a file.
func cutFile(t *testing.T, path string, n int64) {
	t.Helper()
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.NoError(t, os.Truncate(path, info.Size()-n))
}

// fullDisk fails writes while it is full.
type fullDisk struct {
	mu       sync.Mutex
	full     bool
	room     int  // that is left of it
	noTrunc  bool // also fails Truncate
	attempts int
}

var errFull = errors.New("no space left on device")

func (d *fullDisk) Write(n int) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.attempts++; d.full {
		return min(n, d.room), errFull
	}
	return n, nil
}

func (d *fullDisk) Truncate() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noTrunc {
		return errFull
	}
	return nil
}

func (d *fullDisk) set(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// repair makes everything succeed.
func (d *fullDisk) repair() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full, d.noTrunc = false, false
}

// TestD3_FullDisk fills the disk. The ring continues, and the log has every term once there
// is room again.
func TestD3_FullDisk(t *testing.T) {
	for _, noTrunc := range []bool{false, true} {
		t.Run(fmt.Sprintf("cannot truncate %t", noTrunc), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			disk := &fullDisk{room: 100, noTrunc: noTrunc}
			var log logs
			inBubble(t, logged(path, history.WithDisk(disk), history.WithLogger(log.logger())), workers, tasks, func(t *testing.T, f *fleet) {
				random := rand.New(rand.NewPCG(3, 3))
				f.live(random, 10)
				synctest.Wait()
				require.Zero(t, f.ring.LogStatus())
				disk.set(true)
				f.live(random, 10)
				synctest.Wait()
				require.Equal(t, history.LogStatus{Err: errFull}, f.ring.LogStatus())
				require.Equal(t, 1, log.count("history log not written, will retry"))
				disk.set(false)
				f.live(random, 10)
				require.NoError(t, f.ring.Close())
				require.Zero(t, f.ring.LogStatus())
				require.Equal(t, 1, log.count("history log written again"))

				replayed, err := history.Open(path)
				require.NoError(t, err)
				require.Equal(t, noTrunc, len(replayed.Notes()) > 0, replayed.Notes())
				require.Equal(t, show(f.ring.View(), workers, tasks), show(replayed.View(), workers, tasks))
			})
		})
	}
}

// TestD3_SlowLogger fills the disk while the logger of the log does not return. Terms do not
// wait for it.
func TestD3_SlowLogger(t *testing.T) {
	disk := &fullDisk{}
	slow := new(slowLog)
	logger := slog.New(slog.NewTextHandler(slow, nil))
	opts := logged(filepath.Join(t.TempDir(), "log"), history.WithDisk(disk), history.WithLogger(logger))
	inBubble(t, opts, workers, tasks, func(t *testing.T, f *fleet) {
		slow.release = make(chan struct{})
		f.terms(2)
		synctest.Wait()
		disk.set(true)
		f.live(rand.New(rand.NewPCG(3, 3)), 10)
		require.ErrorIs(t, f.ring.LogStatus().Err, errFull)
		disk.set(false)
		close(slow.release)
		require.NoError(t, f.ring.Close())
	})
}

// slowLog is where a logger writes to.
type slowLog struct{ release chan struct{} }

func (l *slowLog) Write(p []byte) (int, error) {
	<-l.release
	return len(p), nil
}

// TestD3_FullQueue fills the disk for so long that the queue is full. The terms that the log
// lacks are counted, and the next one has the workers of all of them.
func TestD3_FullQueue(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	disk := &fullDisk{}
	var log logs
	inBubble(t, logged(path, history.WithDisk(disk), history.WithLogger(log.logger()), history.WithQueue(100)), workers, tasks, func(t *testing.T, f *fleet) {
		f.terms(2)
		synctest.Wait()
		disk.set(true)
		f.live(rand.New(rand.NewPCG(9, 9)), 200)
		f.Heal()
		f.Refuse(nil)
		f.terms(3)
		synctest.Wait()
		status := f.ring.LogStatus()
		require.ErrorIs(t, status.Err, errFull)
		require.Greater(t, status.Missed, 10)
		require.Equal(t, 1, log.count("history log too slow, terms dropped"))
		disk.set(false)
		f.terms(2)
		require.NoError(t, f.AddTask("last"))
		f.terms(1)
		synctest.Wait()
		require.NoError(t, f.AddTask("the very last"))
		f.terms(2)
		require.NoError(t, f.ring.Close())
		require.NoError(t, f.ring.LogStatus().Err)

		replayed, err := history.Open(path)
		require.NoError(t, err)
		require.Len(t, replayed.Notes(), 1)
		require.Contains(t, replayed.Notes()[0], fmt.Sprintf("%d terms after", f.ring.LogStatus().Missed))
		require.Equal(t, f.ring.View().Workers(), replayed.View().Workers())
		live, _ := f.ring.View().Last()
		last, _ := replayed.View().Last()
		require.Equal(t, live, last)
	})
}

// What waits and pauses has its part in the bound of the queue.
func TestD3_WaitingOnFullDisk(t *testing.T) {
	r, err := history.New(history.WithFile(filepath.Join(t.TempDir(), "log"), 0, 0), history.WithDisk(&fullDisk{full: true}), history.WithQueue(1000))
	require.NoError(t, err)
	for i := range uint64(20) {
		term := &history.Term{Waiting: make([]history.Waiting, 60), Paused: make([]history.Pause, 40)}
		term.Stats.Term.Number = i + 1
		r.Put(term)
	}
	require.Greater(t, r.LogStatus().Missed, 10)
	require.ErrorIs(t, r.Close(), errFull)
	require.Equal(t, 20, r.LogStatus().Missed)
}

// TestD3_ChurnOnFullDisk adds and removes workers while the disk is full. What waits does not
// grow with their names, and the log says how many terms it lacks, also if none follows.
func TestD3_ChurnOnFullDisk(t *testing.T) {
	for _, after := range []string{"a term", "quiet terms", "nothing"} {
		t.Run(after, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log")
			disk := &fullDisk{}
			inBubble(t, logged(path, history.WithDisk(disk), history.WithQueue(1)), workers, tasks, func(t *testing.T, f *fleet) {
				f.terms(2)
				synctest.Wait()
				disk.set(true)
				for i := range 30 {
					name := fmt.Sprintf("name-%d.", i)
					f.Start(name)
					require.NoError(t, f.AddWorker(name))
					f.terms(1)
					f.RemoveWorker(name)
					f.terms(1)
				}
				f.RemoveWorker(workers[0])
				f.terms(1)
				synctest.Wait()
				missed := f.ring.LogStatus().Missed
				require.Greater(t, missed, 30)
				if after == "quiet terms" {
					f.terms(3)
					missed = f.ring.LogStatus().Missed
				}
				disk.set(false)
				if after == "a term" {
					f.RemoveTask(tasks[0]) // tries what waits again
					f.terms(1)
					synctest.Wait()
					missed = f.ring.LogStatus().Missed
					require.NoError(t, f.AddTask(tasks[0]))
					f.terms(1)
				}
				require.NoError(t, f.ring.Close())
				require.Equal(t, history.LogStatus{Missed: missed}, f.ring.LogStatus())

				replayed, err := history.Open(path)
				require.NoError(t, err)
				require.Len(t, replayed.Notes(), 1, replayed.Notes())
				require.Contains(t, replayed.Notes()[0], fmt.Sprintf("%d terms after term", missed))
				live, kept := show(f.ring.View(), workers, tasks), show(replayed.View(), workers, tasks)
				require.Equal(t, live.Workers, kept.Workers)
				require.Equal(t, live.Quiet[0], kept.Quiet[0])
				text, err := os.ReadFile(path)
				require.NoError(t, err)
				require.NotContains(t, string(text), "name-20.")
			})
		})
	}
}

// TestD19_CutHeader fills the disk within the header, and the file cannot be truncated.
func TestD19_CutHeader(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	disk := &fullDisk{full: true, room: 20, noTrunc: true}
	inBubble(t, logged(path, history.WithDisk(disk)), workers, tasks, func(t *testing.T, f *fleet) {
		f.terms(2)
		synctest.Wait()
		require.ErrorIs(t, f.ring.LogStatus().Err, errFull)
		disk.set(false)
		f.RemoveTask(tasks[0])
		f.terms(1)
		synctest.Wait()
		require.Error(t, f.ring.LogStatus().Err, "the file cannot be truncated")
		disk.repair()
		require.NoError(t, f.ring.Close())
		replayed, err := history.Open(path)
		require.NoError(t, err)
		require.Empty(t, replayed.Notes())
		require.Equal(t, show(f.ring.View(), workers, tasks), show(replayed.View(), workers, tasks))
	})
}

// TestD19_RotationWithFreeName rotates files of which one is missing, as after a rename that
// failed. None is overwritten.
func TestD19_RotationWithFreeName(t *testing.T) {
	path := write(t, map[string]string{
		"log.3": header + term(11), "log.2": header + term(12), "log": header + term(13) + strings.Repeat("\n", 100_000),
	})
	ring := func() (*history.Ring, error) { return history.New(history.WithFile(path, 90_000, 4)) }
	inBubble(t, ring, workers, tasks, func(_ *testing.T, f *fleet) { f.terms(1) })
	replayed, err := history.Open(path)
	require.NoError(t, err)
	require.Equal(t, []uint64{11, 12, 13, 1}, numbers(replayed))
}

// TestD19_RotationFails puts a directory in the way of a rotation. Nothing is lost, and the
// log continues once it is removed.
func TestD19_RotationFails(t *testing.T) {
	path := write(t, map[string]string{"log": header + term(11) + strings.Repeat("\n", 100_000), "log.1/x": ""})
	var log logs
	ring := func() (*history.Ring, error) {
		return history.New(history.WithFile(path, 90_000, 2), history.WithLogger(log.logger()))
	}
	inBubble(t, ring, workers, tasks, func(t *testing.T, f *fleet) {
		for range 3 { // each tries again
			f.RemoveTask(tasks[0])
			f.terms(1)
			require.NoError(t, f.AddTask(tasks[0]))
			f.terms(1)
		}
		synctest.Wait()
		require.ErrorContains(t, f.ring.LogStatus().Err, "log.1")
		require.Equal(t, 1, log.count("history log not written, will retry"))
		replayed, err := history.Open(path)
		require.NoError(t, err)
		require.Equal(t, []uint64{11}, numbers(replayed))

		require.NoError(t, os.RemoveAll(path+".1"))
		require.NoError(t, f.ring.Close())
		replayed, err = history.Open(path)
		require.NoError(t, err)
		require.Empty(t, replayed.Notes())
		require.Equal(t, append([]uint64{11}, numbers(f.ring)...), numbers(replayed))
	})
}

// TestClose_FullDisk closes a log that cannot be written.
func TestClose_FullDisk(t *testing.T) {
	disk := &fullDisk{full: true}
	path := filepath.Join(t.TempDir(), "log")
	inBubble(t, logged(path, history.WithDisk(disk)), workers, tasks, func(t *testing.T, f *fleet) {
		f.terms(1)
		require.ErrorIs(t, f.ring.Close(), errFull)
		require.Equal(t, history.LogStatus{Err: errFull, Missed: 1}, f.ring.LogStatus())
		require.NoError(t, f.ring.Close())
		f.terms(1)
		require.Equal(t, 1, f.ring.View().Counts().Terms)
	})
}

// TestWithFile_QuietMinutes counts the lines of ten minutes in which nothing happens.
func TestWithFile_QuietMinutes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	inBubble(t, logged(path), workers, tasks, func(t *testing.T, f *fleet) {
		f.terms(2)
		synctest.Wait()
		before, err := os.ReadFile(path)
		require.NoError(t, err)
		f.terms(600)
		synctest.Wait() // the process is killed here
		after, err := os.ReadFile(path)
		require.NoError(t, err)
		lines := strings.Count(string(after[len(before):]), "\n")
		require.Equal(t, 10, lines)
		replayed, err := history.Open(path)
		require.NoError(t, err)
		require.Equal(t, 600, replayed.View().Counts().Quiet)
	})
}
