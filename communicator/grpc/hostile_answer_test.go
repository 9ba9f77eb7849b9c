package grpc

// Hostile workers: answers that are small on the wire and large when decoded.

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// verbatim is a codec that changes nothing.
type verbatim struct{}

func (verbatim) Name() string                         { return "proto" }
func (verbatim) Unmarshal(mem.BufferSlice, any) error { return nil }
func (verbatim) Marshal(v any) (mem.BufferSlice, error) {
	content, _ := v.([]byte)
	return mem.BufferSlice{mem.SliceBuffer(content)}, nil
}

// serveAnswer answers every call with the same bytes.
func serveAnswer(t *testing.T, answer []byte) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := grpc.NewServer(grpc.ForceServerCodecV2(verbatim{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if err := stream.RecvMsg(nil); err != nil {
			return err
		}
		return stream.SendMsg(answer)
	}))
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		require.NoError(t, <-done)
	})
	return l.Addr().String()
}

// filled returns a message of maximum length that consists of empty submessages of
// one field.
func filled(field byte, begin ...byte) []byte {
	return append(begin, bytes.Repeat([]byte{field<<3 | 2, 0}, (16*grpctest.Mebi-len(begin))/2)...)
}

// whileAnswered bounds the memory for an answer of 16 MiB. The answer exists at both
// ends and in transit, as a whole and in parts.
const whileAnswered = 160 * grpctest.Mebi

// Millions of results for one change are an error of that change, and take no more
// memory than the message.
func TestR3_AnAnswerOfMillionsOfResults(t *testing.T) {
	good, liar := hire(t), Worker{"liar", 1}
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": a valid answer
	}{
		"of results":               {filled(1), "worker answered 8388608 of 1 changes"},
		"of unknown fields":        {filled(9), "worker answered 0 of 1 changes"},
		"of that, and of a result": {filled(9, 0x0a, 0x02, 0x08, byte(orchestratorv1.Outcome_OUTCOME_DONE)), ""},
		"of a result within which": {inside(1), "outcome unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			comm := communicator(t)
			introduce(t, comm, good.as("w1"), good.addr)
			introduce(t, comm, liar, serveAnswer(t, c.answer))
			list := func(ctx context.Context) error {
				_, err := comm.List(ctx, good.as("w1"))
				return err
			}
			grpctest.Meanwhile(t, whileAnswered, list, list, func() {
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
	return protowire.AppendBytes(protowire.AppendTag(nil, field, protowire.BytesType), filled(9)[:15*grpctest.Mebi])
}

// A registering worker must report as a worker does. A longer answer is not read.
func TestR3_AReportOfMillionsOfTasksToAManager(t *testing.T) {
	var logs grpctest.Journal
	_, manager := manage(t, probedWithin(time.Second), WithLogger(slog.New(slog.NewTextHandler(&logs, nil))))
	conn := connect(t, manager, aManager)
	register := func(ctx context.Context, w Worker, address string) error {
		_, err := orchestratorv1.NewManagerClient(conn).Register(ctx, &orchestratorv1.RegisterRequest{
			Worker: []byte(w.Name), Incarnation: w.Incarnation, Address: address, Lease: durationpb.New(time.Minute),
		}, grpc.WaitForReady(true))
		return err
	}
	good := hire(t)
	serve := func(ctx context.Context) error { return register(ctx, good.as("w1"), good.addr) }

	own, another := reportOf(1), reportOf(1)
	another.Version.Incarnation = 2
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": accepted as a worker
	}{
		"millions":                {filled(2, marshaled(t, own)...), "received message larger than max"},
		"nothing":                 {nil, "report has version 0.0, want 1.1 or later"},
		"no message":              {[]byte("HTTP/1.1 200 OK"), wire.ErrMalformed.Error()},
		"that of another process": {marshaled(t, another), "report has version 2.1, want 1.1 or later"},
		"its own":                 {marshaled(t, own), ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := serveAnswer(t, c.answer)
			grpctest.Meanwhile(t, whileAnswered, serve, serve, func() {
				err := register(t.Context(), Worker{"liar", 1}, address)
				if c.says == "" {
					require.NoError(t, err)
					return
				}
				require.Equal(t, codes.Unavailable, status.Code(err))
				require.Equal(t, unreachableAnswer, status.Convert(err).Message(), "the same for every server")
				require.Contains(t, logs.String(), `worker \"liar\" at `+address+": manager cannot call worker: ")
				require.Contains(t, logs.String(), c.says)
			})
		})
	}
}
