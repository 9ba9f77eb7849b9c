package grpc

// Hostile workers: answers that are small on the wire and large when decoded.

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// Millions of results for one change are an error of that change, and take no more
// memory than the message.
func TestR3_AnAnswerOfMillionsOfResults(t *testing.T) {
	good, liar := newServedWorker(t), WorkerID{"liar", 1}
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": a valid answer
	}{
		"of results":               {grpctest.Filled(1), "worker answered 8388608 of 1 changes"},
		"of unknown fields":        {grpctest.Filled(9), "worker answered 0 of 1 changes"},
		"of that, and of a result": {grpctest.Filled(9, 0x0a, 0x02, 0x08, byte(orchestratorv1.Outcome_OUTCOME_DONE)), ""},
		"of a result within which": {inside(1), "outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			comm := communicator(t)
			introduce(t, comm, good.as("w1"), good.addr)
			introduce(t, comm, liar, grpctest.ServeAnswer(t, c.answer))
			list := func(ctx context.Context) error {
				_, err := comm.List(ctx, good.as("w1"))
				return err
			}
			grpctest.Meanwhile(t, grpctest.AnswerMemory, list, list, func() {
				err := comm.Add(t.Context(), liar, "t")
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorContains(t, err, c.says)
			})
		})
	}
}

// inside returns one submessage of nearly maximum length, which consists of empty
// unknown fields.
func inside(field protowire.Number) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), grpctest.Filled(9)[:15*grpctest.Mebi])
}

// serveLiar serves a worker without limits, on loopback.
func serveLiar(t *testing.T, w orchestratorv1.WorkerServer) (address string) {
	t.Helper()
	s := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(s, w)
	return grpctest.Serve(t, s)
}

// A worker with a million names is listed if its message is short enough. Other
// workers are listed in the meantime.
func TestR3_AMillionNames(t *testing.T) {
	for name, c := range map[string]struct {
		n      int
		format string
		says   string // "": it is listed
	}{
		"in a message too long": {1_000_000, "a-name-of-thirty-two-bytes-%05x", "message exceeds WithMaxMessage"},
		"in one that is not":    {1_000_000, "%x", "report has 1000000 tasks: at most 524288"},
		"half as many":          {500_000, "%x", ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveLiar(t, grpctest.Reporting{Names: func(yield func(string)) {
				for i := range c.n {
					yield(fmt.Sprintf(c.format, i))
				}
			}})
			good, liar := newServedWorker(t), WorkerID{"liar", 1}
			comm := communicator(t)
			introduce(t, comm, good.as("w1"), good.addr)
			introduce(t, comm, liar, address)
			list := func(ctx context.Context) error {
				_, err := comm.List(ctx, good.as("w1"))
				return err
			}
			grpctest.Meanwhile(t, 512*grpctest.Mebi, list, list, func() { // includes the memory of the hostile worker
				names, err := comm.List(t.Context(), liar)
				if c.says != "" {
					require.ErrorContains(t, err, c.says)
					return
				}
				require.NoError(t, err)
				require.Len(t, names, c.n)
			})
		})
	}
}

// A worker that never reads delays only calls to itself, until their deadlines.
func TestR3_SlowReadingWorker(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				f := http2.NewFramer(conn, nil)
				_ = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1<<31 - 1})
				_ = f.WriteWindowUpdate(0, 1<<31-1-65535)
				<-ended // without a Read
				_ = conn.Close()
			})
		}
	})
	defer func() {
		close(ended)
		_ = l.Close()
		wg.Wait()
	}()
	good, slow := newServedWorker(t), WorkerID{"slow", 1}
	comm := communicator(t)
	introduce(t, comm, good.as("w1"), good.addr)
	introduce(t, comm, slow, l.Addr().String())
	list := func(ctx context.Context) error {
		_, err := comm.List(ctx, good.as("w1"))
		return err
	}
	grpctest.Meanwhile(t, 256*grpctest.Mebi, list, list, func() {
		var calls sync.WaitGroup
		for i := range 200 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				began := time.Now()
				if err := comm.Add(ctx, slow, strings.Repeat("x", identity.MaxName-10)+fmt.Sprint(i)); err == nil {
					t.Error("added to a worker that never answers")
				}
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("a call of 2s took %s", took)
				}
			})
		}
		calls.Wait()
	})
}

// An answer above the limit is an error that says so.
func TestR3_AnswersAboveTheLimit(t *testing.T) {
	const most = 2 * grpctest.Mebi
	comm := communicator(t, WithMaxMessage(most))
	liar := WorkerID{"liar", 1}
	introduce(t, comm, liar, serveLiar(t, grpctest.Reporting{Names: func(yield func(string)) { yield(strings.Repeat("x", most+1)) }}))
	_, err := comm.List(t.Context(), liar)
	require.ErrorContains(t, err, "larger")
	require.ErrorContains(t, err, "WithMaxMessage")
}
