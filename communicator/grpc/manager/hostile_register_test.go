package manager

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	communicator "github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/wire"
	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

// A registering worker must report as a worker does. A longer answer is not read.
func TestR3_AReportOfMillionsOfTasksToAManager(t *testing.T) {
	var logs grpctest.Journal
	_, manager := manage(t, probedWithin(time.Second), communicator.WithLogger(slog.New(slog.NewTextHandler(&logs, nil))))
	conn := connect(t, manager, aManager)
	register := func(ctx context.Context, w communicator.Worker, address string) error {
		_, err := orchestratorv1.NewManagerClient(conn).Register(ctx, &orchestratorv1.RegisterRequest{
			Worker: []byte(w.Name), Incarnation: w.Incarnation, Address: address, Lease: durationpb.New(time.Minute),
		}, grpc.WaitForReady(true))
		return err
	}
	good := serveWorker(t)
	serve := func(ctx context.Context) error {
		return register(ctx, communicator.Worker{Name: "w1", Incarnation: good.Incarnation()}, good.addr)
	}

	own, another := grpctest.ReportOf(1), grpctest.ReportOf(1)
	another.Version.Incarnation = 2
	for name, c := range map[string]struct {
		answer []byte
		says   string // "": accepted as a worker
	}{
		"millions":                {grpctest.Filled(2, grpctest.Marshaled(t, own)...), "received message larger than max"},
		"nothing":                 {nil, "report has version 0.0, want 1.1 or later"},
		"no message":              {[]byte("HTTP/1.1 200 OK"), wire.ErrMalformed.Error()},
		"that of another process": {grpctest.Marshaled(t, another), "report has version 2.1, want 1.1 or later"},
		"its own":                 {grpctest.Marshaled(t, own), ""},
	} {
		t.Run(name, func(t *testing.T) {
			address := grpctest.ServeAnswer(t, c.answer)
			grpctest.Meanwhile(t, grpctest.AnswerMemory, serve, serve, func() {
				err := register(t.Context(), communicator.Worker{Name: "liar", Incarnation: 1}, address)
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
