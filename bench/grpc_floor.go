package main

// The floor of a term over gRPC: as many bare calls, over as many connections,
// that say nothing and are answered with nothing.

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/f8949c05/orchestrator/communicator/grpc/orchestratorv1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// bareCalls are servers, and a connection to each.
type bareCalls struct {
	servers []*grpc.Server
	conns   []*grpc.ClientConn
	serving sync.WaitGroup
}

// emptyHandler answers a Report with nothing.
type emptyHandler struct {
	orchestratorv1.UnimplementedWorkerServer
}

func (emptyHandler) Report(context.Context, *orchestratorv1.ReportRequest) (*orchestratorv1.ReportResponse, error) {
	return &orchestratorv1.ReportResponse{}, nil
}

// newBareCalls starts so many servers, and has called each once.
func newBareCalls(ctx context.Context, n int) (*bareCalls, error) {
	b := &bareCalls{}
	for range n {
		if err := b.add(); err != nil {
			return nil, errors.Join(err, b.close())
		}
	}
	if err := b.run(ctx); err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *bareCalls) add() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	orchestratorv1.RegisterWorkerServer(server, emptyHandler{})
	b.servers = append(b.servers, server)
	b.serving.Go(func() { _ = server.Serve(l) }) // a call tells if it has failed
	conn, err := grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	b.conns = append(b.conns, conn)
	return nil
}

// run makes one call on each connection, as many at once as a term does.
func (b *bareCalls) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var next atomic.Int64
	errs := make([]error, callsAtOnce)
	var wg sync.WaitGroup
	for k := range errs {
		wg.Go(func() {
			for i := next.Add(1) - 1; int(i) < len(b.conns) && errs[k] == nil; i = next.Add(1) - 1 {
				_, errs[k] = orchestratorv1.NewWorkerClient(b.conns[i]).Report(ctx, &orchestratorv1.ReportRequest{})
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bare calls: %w", err)
	}
	return nil
}

func (b *bareCalls) close() error {
	var errs []error
	for _, conn := range b.conns {
		errs = append(errs, conn.Close())
	}
	for _, server := range b.servers {
		server.Stop()
	}
	b.serving.Wait()
	return errors.Join(errs...)
}
