package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

const termEvery = time.Second // a change leads to a term sooner

type (
	grpcWorker = grpc.WorkerID
	plan       = orchestrator.Plan[grpcWorker, string]
)

// runningManager is a manager that runs, and its store.
type runningManager struct {
	*manager.Manager
	address string
	end     context.CancelFunc
	ended   chan struct{} // closed when Run has returned and the store is closed, after err is set
	err     error
}

// startManager runs a manager until stop. It prints the changes of each term.
func startManager(dir string, log *stage.Log, stderr io.Writer) (*runningManager, error) {
	own, err := credentials(dir, managerName)
	if err != nil {
		return nil, err
	}
	store, err := boltfile.OpenStore(filepath.Join(dir, "manager.db"))
	if err != nil {
		return nil, err
	}
	m := &runningManager{ended: make(chan struct{})}
	m.Manager, err = manager.New(store,
		grpc.WithCredentials(own),
		grpc.WithLogger(logger(stderr, managerName)),
		manager.WithInterval(termEvery),
		manager.WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) { showChanges(log, m.LastPlan()) })),
	)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	listener, err := net.Listen("tcp", stage.Loopback)
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	m.address = listener.Addr().String()
	ctx, end := context.WithCancel(context.Background())
	m.end = end
	go func() {
		defer close(m.ended)
		m.err = errors.Join(m.Run(ctx, listener), store.Close())
	}()
	return m, nil
}

// hasEnded reports whether the manager no longer runs.
func (m *runningManager) hasEnded() bool {
	select {
	case <-m.ended:
		return true
	default:
		return false
	}
}

// stop stops the manager, and returns when it has ended and its store is closed.
func (m *runningManager) stop() error {
	m.end()
	<-m.ended
	if errors.Is(m.err, context.Canceled) {
		return nil
	}
	return m.err
}

// logger returns a logger of the warnings of a process.
func logger(stderr io.Writer, process string) *slog.Logger {
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn})).With("process", process)
}

// managerName is the name of the manager's files.
const managerName = "manager"

// certify makes certificates for the manager and for each worker. They are made here
// so that the example needs no set-up. For certificates from elsewhere, all that
// matters is the URI in them. The authority's key is not kept.
func certify(dir string, workers ...string) error {
	ca, err := stage.NewCA()
	if err != nil {
		return err
	}
	uris := map[string]string{managerName: grpc.ManagerURI}
	for _, w := range workers {
		uris[w] = grpc.WorkerURI(w)
	}
	for name, uri := range uris {
		certificate, key, err := ca.Issue(name, uri)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path+".pem", certificate, 0o600), os.WriteFile(path+"-key.pem", key, 0o600)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "ca.pem"), ca.PEM(), 0o600)
}

// credentials returns the credentials of the manager or of a worker.
func credentials(dir, name string) (*grpc.Credentials, error) {
	path := filepath.Join(dir, name)
	return grpc.LoadCredentials(path+".pem", path+"-key.pem", filepath.Join(dir, "ca.pem"))
}
