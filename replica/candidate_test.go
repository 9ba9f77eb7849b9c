package replica_test

// Processes that call Lead on a table in memory, in a bubble of testing/synctest.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/memory"
	"github.com/f8949c05/orchestrator/worker"
)

// ballot is a service of which one process leads.
type ballot struct {
	t     *testing.T
	table *memory.Table
	log   *logs
	all   []*voter

	mu     sync.Mutex
	leads  []*voter // now
	twice  []string
	epochs []uint64      // in the order of the calls
	stop   time.Duration // that lead takes to return, once its ctx has ended
	resort [][]string    // calls of the last resort
}

// voter is one process. Its calls may be made to fail.
type voter struct {
	*ballot
	name  string
	leave context.CancelCauseFunc
	done  chan struct{}
	err   error
	end   chan error // lead returns what is sent
	cause error      // with which lead's ctx has ended
	ended time.Time

	lock  sync.Mutex
	cut   bool
	synct time.Time // of the last Sync that was sent and answered
}

func (v *voter) Read(ctx context.Context, q replica.Query) (replica.View, error) {
	if v.isCut() {
		return replica.View{}, memory.ErrInjected
	}
	return v.table.Read(ctx, q)
}

func (v *voter) Sync(ctx context.Context, u replica.Update) (replica.View, error) {
	sent := time.Now()
	if v.isCut() {
		return replica.View{}, memory.ErrInjected
	}
	view, err := v.table.Sync(ctx, u)
	if v.lock.Lock(); err == nil {
		v.synct = sent
	}
	v.lock.Unlock()
	return view, err
}

func (v *voter) Wait(ctx context.Context, q replica.Query) error { return v.table.Wait(ctx, q) }
func (v *voter) Traits() replica.Traits                          { return v.table.Traits() }

func (v *voter) isCut() bool {
	v.lock.Lock()
	defer v.lock.Unlock()
	return v.cut
}

func (v *voter) setCut(cut bool) {
	v.lock.Lock()
	defer v.lock.Unlock()
	v.cut = cut
}

// vote runs a test with an empty table.
func vote(t *testing.T, test func(t *testing.T, b *ballot)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &ballot{t: t, table: memory.New(), log: &logs{level: slog.LevelDebug}}
		defer b.close()
		test(t, b)
	})
}

// close ends all processes.
func (b *ballot) close() {
	b.table.SetFaults(nil)
	for _, v := range b.all {
		v.setCut(false)
		v.leave(nil)
	}
	for _, v := range b.all {
		<-v.done
	}
	if b.once(); b.t.Failed() {
		b.t.Log(string(bytes.Join([][]byte{[]byte("log:"), b.log.buf.Bytes()}, []byte("\n"))))
	}
}

// join starts a process.
func (b *ballot) join() *voter {
	v := &voter{ballot: b, name: fmt.Sprint("p", len(b.all)), done: make(chan struct{}), end: make(chan error)}
	ctx, leave := context.WithCancelCause(b.t.Context())
	v.leave, b.all = leave, append(b.all, v)
	opts := []replica.Option{
		replica.WithName(v.name), replica.WithLease(lease, 2*time.Second), replica.WithService("test"),
		replica.WithLogger(slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: b.log.level}))),
		replica.WithLastResort(b.lastResort),
	}
	go func() {
		defer close(v.done)
		v.err = replica.Lead(ctx, v, v.lead, opts...)
	}()
	return v
}

func (b *ballot) lastResort(tasks []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.resort = append(b.resort, tasks)
}

// lead records who leads. It returns after ctx, or what is sent to end.
func (v *voter) lead(ctx context.Context, epoch uint64) error {
	v.mu.Lock()
	if v.leads = append(v.leads, v); len(v.leads) > 1 {
		v.twice = append(v.twice, fmt.Sprintf("%s leads epoch %d beside %s", v.name, epoch, v.leads[0].name))
	}
	v.epochs = append(v.epochs, epoch)
	stop := v.stop
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.leads = slices.DeleteFunc(v.leads, func(other *voter) bool { return other == v })
	}()
	select {
	case err := <-v.end:
		return err
	case <-ctx.Done():
	}
	v.mu.Lock()
	v.cause, v.ended = context.Cause(ctx), time.Now()
	v.mu.Unlock()
	time.Sleep(stop)
	return context.Cause(ctx)
}

// leader waits until a process leads that is not former, and returns it.
func (b *ballot) leader(limit time.Duration, former *voter) *voter {
	b.t.Helper()
	for began := time.Now(); time.Since(began) <= limit; time.Sleep(time.Millisecond) {
		synctest.Wait()
		b.mu.Lock()
		leads := slices.Clone(b.leads)
		b.mu.Unlock()
		if len(leads) == 1 && leads[0] != former {
			b.once()
			return leads[0]
		}
	}
	b.t.Fatalf("no leader within %v", limit)
	return nil
}

// once fails if two processes have led at once.
func (b *ballot) once() {
	b.t.Helper()
	b.mu.Lock()
	twice := b.twice
	b.mu.Unlock()
	require.Empty(b.t, twice)
}

// rise fails unless each epoch is above the one before.
func (b *ballot) rise() {
	b.t.Helper()
	b.mu.Lock()
	epochs := slices.Clone(b.epochs)
	b.mu.Unlock()
	require.True(b.t, slices.IsSorted(epochs), epochs)
	require.Len(b.t, slices.Compact(slices.Clone(epochs)), len(epochs))
}

func TestLead_ResignsAtOnce(t *testing.T) {
	for name, want := range map[string]error{"nil": nil, "an error": errors.New("no disk")} {
		t.Run(name, func(t *testing.T) {
			vote(t, func(t *testing.T, b *ballot) {
				b.join()
				b.join()
				first := b.leader(lease/12, nil)
				time.Sleep(time.Minute)
				first.end <- want
				<-first.done
				require.Equal(t, want, first.err)
				began := time.Now()
				second := b.leader(lease, first)
				require.Less(t, time.Since(began), lease/100, "no lease is waited for")
				require.NotSame(t, first, second)
				b.rise()
				require.Empty(t, b.log.lines("level=WARN"))
			})
		})
	}
}

// TestLead_WorkersBelieveItsEpochs: a worker that has seen a leader's terms believes those of the
// next one, which comes a year later.
func TestLead_WorkersBelieveItsEpochs(t *testing.T) {
	vote(t, func(t *testing.T, b *ballot) {
		w, err := worker.New(func(ctx context.Context, _ string) error { <-ctx.Done(); return nil })
		require.NoError(t, err)
		defer func() { require.NoError(t, w.Close(context.WithoutCancel(t.Context()))) }()
		for _, task := range []string{"a", "b"} {
			leader := b.join()
			b.leader(3*lease, nil)
			term := orchestrator.Term{Epoch: b.epochs[len(b.epochs)-1], Number: 1}
			require.NoError(t, w.Add(orchestrator.ContextWithTerm(t.Context(), term), task))
			leader.leave(nil)
			<-leader.done
			time.Sleep(365 * 24 * time.Hour)
		}
	})
}

// TestA7_LeadIsAlwaysAnswered: it has no Source that others could wait for.
func TestA7_LeadIsAlwaysAnswered(t *testing.T) {
	vote(t, func(t *testing.T, b *ballot) {
		b.join()
		b.join()
		b.leader(lease, nil)
		time.Sleep(lease)
		v, err := b.table.Read(t.Context(), replica.Query{Self: 1})
		require.NoError(t, err)
		require.Len(t, v.Members, 2)
		for _, m := range v.Members {
			require.True(t, m.Answered)
			require.Equal(t, replica.CandidateOnly, m.Role)
		}
	})
}

func TestLead_EndsInOtherWays(t *testing.T) {
	for want, end := range map[string]func(){
		"panic: no disk":             func() { panic("no disk") },
		"lead called runtime.Goexit": runtime.Goexit,
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			err := replica.Lead(t.Context(), memory.New(), func(context.Context, uint64) error {
				calls++
				end()
				return nil
			}, replica.WithLogger(slog.New(slog.DiscardHandler)))
			require.EqualError(t, err, want)
			require.Equal(t, 1, calls)
		})
	}
}

func TestLead_ItsContextEnds(t *testing.T) {
	vote(t, func(t *testing.T, b *ballot) {
		b.stop = time.Second
		b.join()
		b.join()
		first, cause := b.leader(lease, nil), errors.New("SIGTERM")
		began := time.Now()
		first.leave(cause)
		second := b.leader(lease, first)
		require.Less(t, time.Since(began), b.stop+lease/100)
		<-first.done
		require.NoError(t, first.err)
		require.ErrorIs(t, first.cause, cause)

		second.leave(nil)
		<-second.done
		require.NoError(t, second.err)
	})
}

func TestLead_AnErrorAfterItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := errors.New("not flushed")
		err := replica.Lead(ctx, memory.New(), func(ctx context.Context, _ uint64) error {
			cancel()
			<-ctx.Done()
			return failed
		}, replica.WithLogger(slog.New(slog.DiscardHandler)))
		require.ErrorIs(t, err, failed)
	})
}

// TestLead_EndsBeforeItsLease: a process that is cut off knows first.
func TestLead_EndsBeforeItsLease(t *testing.T) {
	vote(t, func(t *testing.T, b *ballot) {
		b.stop = 2*time.Second - time.Millisecond
		b.join()
		b.join()
		first := b.leader(lease, nil)
		first.setCut(true)
		second := b.leader(3*lease, first)
		require.ErrorIs(t, first.cause, orchestrator.ErrDeposed)
		require.LessOrEqual(t, first.ended.Add(b.stop).Sub(first.synct), lease-lease/10)
		require.Greater(t, time.Since(first.synct), lease)

		first.setCut(false) // it campaigns again
		time.Sleep(lease)
		second.end <- nil
		b.leader(lease, second)
		require.Len(t, b.epochs, 3)
		b.rise()
	})
}

// TestLead_AnOutage: a store that is away ends a leadership only if it outlasts the lease.
func TestLead_AnOutage(t *testing.T) {
	for away, epochs := range map[time.Duration]int{lease / 2: 1, 2 * lease: 2} {
		vote(t, func(t *testing.T, b *ballot) {
			b.join()
			b.join()
			b.leader(lease, nil)
			b.table.SetFaults(func(replica.Update) memory.Fault { return memory.Fault{Err: memory.ErrInjected} })
			time.Sleep(away)
			b.table.SetFaults(nil)
			time.Sleep(3 * lease)
			b.leader(lease, nil)
			require.Len(t, b.epochs, epochs)
			b.rise()
		})
	}
}

// TestLead_DeletedByHand: the process whose records are deleted may still lead, so the next one
// waits for it (B6).
func TestLead_DeletedByHand(t *testing.T) {
	for name, remove := range map[string]func(m *memory.Member){
		"the record":            func(m *memory.Member) { m.Record = replica.Member{} },
		"the record and report": func(m *memory.Member) { m.Record, m.Report = replica.Member{}, nil },
		"the order":             func(m *memory.Member) { clear(m.Orders) },
		"the report":            func(m *memory.Member) { m.Report = nil },
	} {
		t.Run(name, func(t *testing.T) {
			vote(t, func(_ *testing.T, b *ballot) {
				b.stop = time.Second
				b.join()
				b.join()
				b.join()
				first := b.leader(lease, nil)
				b.table.Edit(func(r *memory.Records) {
					for _, m := range r.Members {
						if m.Record.Name == first.name {
							remove(m)
						}
					}
				})
				time.Sleep(2 * lease)
				b.leader(2*lease, nil)
				b.rise()
			})
		})
	}
}

// TestLead_IgnoresItsContext: the log names it, and the last resort is called before the lease
// can end, whatever ends the leadership.
func TestLead_IgnoresItsContext(t *testing.T) {
	for name, end := range map[string]func(*voter){
		"cut off": func(v *voter) { v.setCut(true) },
		"a loss":  func(v *voter) { v.table.Truncate() },
		"another": func(v *voter) { v.table.Edit(func(r *memory.Records) { r.Epoch += 1 << 33 }) },
		"ctx":     func(v *voter) { v.leave(nil) },
		"the records": func(v *voter) {
			v.table.Edit(func(r *memory.Records) {
				for _, m := range r.Members {
					m.Record, m.Report = replica.Member{}, nil
					clear(m.Orders)
				}
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			vote(t, func(t *testing.T, b *ballot) {
				b.stop = 5 * lease
				b.join()
				first := b.leader(lease, nil)
				b.stop = 0
				for range 2 {
					b.join()
				}
				time.Sleep(lease)
				began := time.Now()
				end(first)
				for time.Since(began) <= lease-lease/10 && len(b.resorted()) == 0 {
					time.Sleep(time.Millisecond)
				}
				require.Equal(t, [][]string{{"lead"}}, b.resorted())
				synctest.Wait()
				require.NotEmpty(t, b.log.lines("tasks=[lead]"))
				time.Sleep(lease / 20)
				b.once()
				if name == "ctx" {
					return // its heartbeat goes on until the process ends
				}
				b.mu.Lock()
				b.leads = nil // the process has ended
				b.mu.Unlock()
				b.leader(3*lease, first)
			})
		})
	}
}

func (b *ballot) resorted() [][]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.resort
}

// TestLead_Histories: in random histories no two processes lead at once, and in the end one does.
func TestLead_Histories(t *testing.T) {
	for range *histories {
		seed := rand.Uint64()
		if *historySeed != 0 {
			seed = *historySeed
		}
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			vote(t, func(t *testing.T, b *ballot) { leadHistory(t, b, rand.New(rand.NewPCG(seed, 3))) })
		})
		if !ok {
			t.Fatalf("again: go test ./replica -run TestLead_Histories -history %d", seed)
		}
	}
}

func leadHistory(t *testing.T, b *ballot, r *rand.Rand) {
	if r.IntN(2) == 0 {
		b.table = memory.NewPiecewise()
	}
	losses := r.IntN(3) == 0
	h := &history{fleet: newFleet(t, b.table), r: r, dice: rand.New(rand.NewPCG(r.Uint64(), 4)), cut: make(map[string]bool), ids: make(map[uint64]string)}
	b.table.SetFaults(h.fault)
	b.stop = time.Duration(r.Int64N(int64(2 * time.Second)))
	var saved []memory.Saved
	for range 60 {
		switch v := pickVoter(b, r); r.IntN(12) {
		case 0, 1:
			b.join()
		case 2:
			v.leave(nil)
		case 3:
			select {
			case v.end <- nil:
			default:
			}
		case 4, 5, 6:
			v.setCut(!v.isCut())
		case 7:
			h.mu.Lock()
			h.bad = []int{0, 5, 20, 60}[r.IntN(4)]
			h.mu.Unlock()
		case 8, 9:
			h.edit()
		case 10:
			saved = append(saved, b.table.Save())
		case 11:
			if losses && len(saved) > 0 {
				b.table.Restore(saved[r.IntN(len(saved))])
			}
		}
		time.Sleep(time.Duration(r.Int64N(int64(lease / 2))))
		b.once()
	}
	b.table.SetFaults(nil)
	for _, v := range b.all {
		v.setCut(false)
	}
	b.join()
	time.Sleep(3 * lease)
	b.leader(4*lease, nil)
	if !losses {
		b.rise()
	}
}

// pickVoter returns a process, and starts one if there is none.
func pickVoter(b *ballot, r *rand.Rand) *voter {
	if len(b.all) == 0 {
		return b.join()
	}
	return b.all[r.IntN(len(b.all))]
}

func TestLead_Options(t *testing.T) {
	err := replica.Lead(t.Context(), nil, nil,
		replica.WithDrain(0), replica.WithInterval(time.Second), replica.WithRole(replica.WorkerOnly), nil,
		replica.WithSettings(orchestrator.WorkerSettings{}), replica.WithOrchestrator(), replica.WithWorker(),
		replica.WithLeading(func(*orchestrator.Orchestrator[replica.WorkerID, string]) func() { return nil }),
		replica.WithLease(0, 0))
	require.ErrorIs(t, err, replica.ErrInvalid)
	for _, text := range []string{
		"the backend is nil", "lead is nil", "WithLease", "option 4 is nil", "WithDrain: Lead runs no tasks", "WithInterval: Lead", "WithRole: Lead",
		"WithSettings: Lead", "WithOrchestrator: Lead", "WithWorker: Lead", "WithLeading: Lead",
	} {
		require.ErrorContains(t, err, text)
	}
}

// TestLead_Foreign: Lead joins neither the table of another service nor that of replicas that
// run tasks, and these do not join its own.
func TestLead_Foreign(t *testing.T) {
	bubble(t, func(t *testing.T, f *fleet) {
		f.settle(2, 4)
		for _, service := range []string{"test", "other"} {
			err := replica.Lead(t.Context(), f.table, func(context.Context, uint64) error { panic("elected") },
				replica.WithService(service), replica.WithLogger(slog.New(slog.DiscardHandler)))
			require.ErrorIs(t, err, replica.ErrForeign)
		}
		require.True(t, f.allRun())
	})
	vote(t, func(t *testing.T, b *ballot) {
		b.join()
		b.leader(lease, nil)
		err := replica.Run(t.Context(), b.table, replica.Names("a"), func(context.Context, string) error { panic("ran") },
			replica.WithService("test"), replica.WithLogger(slog.New(slog.DiscardHandler)))
		require.ErrorIs(t, err, replica.ErrForeign)
	})
}
