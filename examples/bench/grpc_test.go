//go:build peers

package main

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/stats"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
)

func TestOverGRPC(t *testing.T) {
	cfg := short()
	cfg.log = t.Logf
	cfg.grpc = grpcConfig{
		size: size{20, 2, 1}, others: []int{10, 40}, lease: 2 * time.Second, interval: 100 * time.Millisecond,
		colds: 1, rounds: 3, fewer: 2, lost: 1, timeout: time.Minute,
	}
	r, err := measureGRPC(t.Context(), cfg)
	require.NoError(t, err)

	cold := r.cold[0]
	require.GreaterOrEqual(t, cold.starts, 20)
	require.Greater(t, cold.calls.payload, 20*contentBytes, "contents were sent")
	require.GreaterOrEqual(t, cold.membership.messages, 4, "two registrations and their answers")
	lost := r.lost[0]
	require.Equal(t, 10, lost.starts, "its tasks start elsewhere")
	require.Greater(t, lost.before, time.Second, "the lease must end first")

	require.Len(t, r.steady, 3)
	require.Len(t, r.steady[0].took, 3)
	for i, workers := range []int{2, 1, 1} {
		s := r.steady[i]
		require.Equal(t, workers, s.workers)
		messages := s.each(func(term int) float64 { return float64(s.bytes[term].messages) })
		require.InDelta(t, 2*workers, messages, 0, "one call and one answer for each worker")
		require.Greater(t, s.each(func(term int) float64 { return float64(s.bytes[term].wire) })/float64(workers), s.payload())
		require.Positive(t, s.floor.median())
	}
	require.InDelta(t, r.steady[1].payload(), r.steady[2].payload(), 4, "four times the tasks")

	require.Equal(t, "20 × 2", r.tables()[0].Title)
	require.Len(t, r.goals(), 3)
}

// payloads counts messages as a stats handler of a client sees them.
type payloads struct{ bytes, messages atomic.Int64 }

func (p *payloads) HandleRPC(_ context.Context, s stats.RPCStats) {
	switch s := s.(type) {
	case *stats.OutPayload:
		p.bytes.Add(int64(s.CompressedLength))
		p.messages.Add(1)
	case *stats.InPayload:
		p.bytes.Add(int64(s.CompressedLength))
		p.messages.Add(1)
	}
}

func (p *payloads) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (p *payloads) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (p *payloads) HandleConn(context.Context, stats.ConnStats)                       {}

// echo answers with as many names as the request has changes.
type echo struct {
	orchestratorv1.UnimplementedWorkerServer
}

func (echo) Apply(_ context.Context, r *orchestratorv1.ApplyRequest) (*orchestratorv1.ApplyResponse, error) {
	answer := &orchestratorv1.ApplyResponse{}
	for _, c := range r.GetChanges() {
		answer.Results = append(answer.Results, &orchestratorv1.Result{Message: string(c.GetTask())})
	}
	return answer, nil
}

// The meter counts messages as a stats handler does. Each connection has many
// concurrent calls: some take several frames, some are empty, and some fail.
func TestMeter_AgreesWithAStatsHandler(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var m meter
	server := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(server, echo{})
	served := make(chan error, 1)
	go func() { served <- server.Serve(m.on(l)) }()
	var counted payloads
	conn, err := grpc.NewClient(l.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithStatsHandler(&counted))
	require.NoError(t, err)

	const calls = 60
	ended := make(chan error, calls)
	for i := range calls {
		go func() {
			request := &orchestratorv1.ApplyRequest{}
			if i%3 > 0 {
				task := []byte(strings.Repeat("x", i*1000))
				request.Changes = []*orchestratorv1.Change{{Task: task}, {Task: task}}
			}
			client := orchestratorv1.NewWorkerClient(conn)
			_, err := client.Apply(t.Context(), request)
			if i%3 == 0 {
				_, _ = client.Report(t.Context(), &orchestratorv1.ReportRequest{Incarnation: 1}) // an error counts as an answer
			}
			ended <- err
		}()
	}
	for range calls {
		require.NoError(t, <-ended)
	}
	require.NoError(t, conn.Close())
	server.Stop()
	require.NoError(t, <-served)

	got := m.read()
	require.Equal(t, int(counted.messages.Load()), got.messages)
	require.Equal(t, int(counted.bytes.Load()), got.payload)
	require.Greater(t, got.payload, 1_000_000)
	require.Greater(t, got.wire, got.payload)
}

// The meter finds the frames in pieces of any size.
func TestMeter_WhateverThePieces(t *testing.T) {
	frame := func(kind, flags, stream byte, payload int) []byte {
		return append([]byte{byte(payload >> 16), byte(payload >> 8), byte(payload), kind, flags, 0, 0, 0, stream}, make([]byte, payload)...)
	}
	var sent []byte
	sent = append(sent, make([]byte, clientPreface)...)
	sent = append(sent, frame(4, 0, 0, 18)...)
	sent = append(sent, frame(frameHeaders, 0, 1, 30)...)
	sent = append(sent, frame(frameData, 0, 1, messagePrefix+300)...)
	sent = append(sent, frame(frameData, endStream, 1, 200)...)
	sent = append(sent, frame(frameHeaders, endStream, 3, 7)...)
	sent = append(sent, frame(frameData, 0, 5, messagePrefix)...)
	sent = append(sent, frame(frameData, endStream, 5, 0)...)
	for _, piece := range []int{1, 2, 9, 10, 33, 1000} {
		var m meter
		f := framing{meter: &m, skip: clientPreface}
		for rest := sent; len(rest) > 0; {
			n := min(piece, len(rest))
			f.take(rest[:n])
			rest = rest[n:]
		}
		require.Equal(t, bytesSent{wire: len(sent), payload: 500, messages: 2}, m.read(), "in pieces of %d", piece)
		require.Empty(t, f.open)
	}
}
