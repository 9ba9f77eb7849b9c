package e2e_test

// The manager's process, and the test's requests to it.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/communicator/grpc/boltfile"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/internal/proctest"
)

// managerSettings is the configuration of a manager's process.
type managerSettings struct {
	Journal string
	Store   string // a file
	Listen  string // for workers
	Control string // address of the controlServer
	settings
}

// runManager is the main function of a manager's process.
func runManager(s managerSettings) (err error) {
	j, err := proctest.OpenJournal(s.Journal, managerRole)
	if err != nil {
		return err
	}
	store, err := boltfile.OpenStore(s.Store)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	control := &controlServer{}
	m, err := manager.New(&witnessed{store, j},
		grpc.WithLogger(slog.New(slog.NewTextHandler(os.Stderr, nil))),
		manager.WithInterval(s.Interval),
		manager.WithUnreachable(s.Lease/2),
		manager.WithOrchestrator(
			orchestrator.WithCommunicatorTimeout(s.Lease/2),
			orchestrator.WithMaxPause(s.Lease), // each round is a fall of some worker (T17)
			orchestrator.WithStats(func(t orchestrator.TermStats) {
				if control.leading.CompareAndSwap(false, true) {
					_ = j.Write(proctest.Event{Kind: leads, Token: t.Term.Epoch})
				}
			})))
	if err != nil {
		return err
	}
	control.Manager = m
	asked, err := net.Listen("tcp", s.Control)
	if err != nil {
		return err
	}
	go func() { _ = http.Serve(asked, control) }()
	called, err := net.Listen("tcp", s.Listen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := j.Write(proctest.Event{Kind: serves}); err != nil {
		return err
	}
	if err := m.Run(ctx, called); ctx.Err() == nil {
		return err
	}
	return nil
}

// witnessed is a store that records every completion in the journal: when it is
// saved, and when a starting manager finds it. If a process is killed just after a
// save, the completion may be missing in the journal until it is found.
type witnessed struct {
	manager.Store
	journal *proctest.Journal
}

// doneKey is the prefix of the keys of completions, as documented by boltfile.
const doneKey = "done/"

func (s *witnessed) Load() (map[string][]byte, error) {
	values, err := s.Store.Load()
	if err != nil {
		return nil, err
	}
	return values, s.note(found, values)
}

func (s *witnessed) Save(changes map[string][]byte) error {
	if err := s.Store.Save(changes); err != nil {
		return err
	}
	return s.note(recorded, changes)
}

func (s *witnessed) note(kind string, values map[string][]byte) error {
	for key, value := range values {
		task, ok := strings.CutPrefix(key, doneKey)
		if !ok {
			continue
		}
		e := proctest.Event{Kind: kind, Task: task, Text: string(value)}
		if value == nil {
			e.Kind = forgotten
		}
		if err := s.journal.Write(e); err != nil {
			return err
		}
	}
	return nil
}

// controlServer is an HTTP server through which the test puts tasks and requests the
// manager's state.
type controlServer struct {
	*manager.Manager
	leading atomic.Bool
}

// state is the answer of the controlServer.
type state struct {
	Expected  []string
	Completed []manager.Completion
}

func (c *controlServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := c.serve(w, r); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

func (c *controlServer) serve(w http.ResponseWriter, r *http.Request) error {
	if r.Method == http.MethodPost {
		var items []manager.Item
		if err := json.NewDecoder(r.Body).Decode(&items); err != nil {
			return err
		}
		_, err := c.PutAll(r.Context(), items)
		return err
	}
	var s state
	for after := ""; ; {
		items, err := c.Items(after, manager.MaxList)
		if err != nil {
			return err
		}
		for _, item := range items {
			after = item.Name
			s.Expected = append(s.Expected, item.Name)
		}
		if len(items) < manager.MaxList {
			break
		}
	}
	for after := ""; ; {
		done, err := c.Completed(after, manager.MaxList)
		if err != nil {
			return err
		}
		s.Completed = append(s.Completed, done...)
		if len(done) < manager.MaxList {
			break
		}
		after = done[len(done)-1].Task
	}
	return json.NewEncoder(w).Encode(s)
}

// controlClient is a client of a controlServer, which may be closed.
type controlClient struct {
	http http.Client
	url  string
}

func newControlClient(address string) *controlClient {
	return &controlClient{
		http: http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}},
		url:  "http://" + address,
	}
}

// put reports whether the manager has accepted the items.
func (c *controlClient) put(items []manager.Item) bool {
	text, err := json.Marshal(items)
	if err != nil {
		return false
	}
	resp, err := c.http.Post(c.url, "application/json", bytes.NewReader(text))
	if err != nil {
		return false
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode == http.StatusOK
}

// ask returns the manager's state, and whether the server has answered.
func (c *controlClient) ask() (state, bool) {
	resp, err := c.http.Get(c.url)
	if err != nil {
		return state{}, false
	}
	defer func() { _ = resp.Body.Close() }()
	var s state
	err = json.NewDecoder(resp.Body).Decode(&s)
	return s, err == nil && resp.StatusCode == http.StatusOK
}
