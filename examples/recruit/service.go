package main

// The web service: a cache and a queue over HTTP, with or without recruiting.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/recruit"
)

// slice is the number of fields or items per recruit. Garbage grows at the rate of
// the writes, which are 30% of the requests. So recruits for a tenth of the
// requests, with five fields each, can keep up.
const (
	slice       = 5
	expireRate  = 0.1
	archiveRate = 0.1
)

// service is one of the two services, with separate keys.
type service struct {
	name      string
	cache     *cache
	queue     *queue
	recruiter *recruit.Recruiter // without jobs, no request recruits
	server    *stage.Server
}

func newService(st *store, name string) (*service, error) {
	r, err := recruit.New()
	if err != nil {
		return nil, err
	}
	s := &service{
		name:      name,
		cache:     newCache(st.rdb, st.prefix+name+":cache"),
		queue:     newQueue(st.rdb, st.prefix+name+":queue"),
		recruiter: r,
	}
	if s.server, err = stage.Serve(stage.Loopback, r.Middleware(s.handler())); err != nil {
		return nil, fmt.Errorf("serve %q: %w", name, err)
	}
	return s, nil
}

// recruit installs the jobs.
func (s *service) recruit() error {
	return errors.Join(
		s.recruiter.Install("expire", expireRate, recruit.JobFunc(func(ctx context.Context) error {
			_, err := s.cache.collect(ctx, slice)
			return err
		})),
		s.recruiter.Install("archive", archiveRate, recruit.JobFunc(func(ctx context.Context) error {
			return s.queue.archive(ctx, slice)
		})))
}

// close ends the server and its recruits.
func (s *service) close() {
	_ = s.server.Close()
	_ = s.recruiter.Close(context.Background()) // jobs end with their contexts
}

const largest = 64 << 10 // value, in bytes

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cache/{field}", s.get)
	mux.HandleFunc("PUT /cache/{field}", s.put)
	mux.HandleFunc("POST /items", func(w http.ResponseWriter, r *http.Request) {
		id, err := s.queue.add(r.Context())
		answer(w, id, true, err)
	})
	mux.HandleFunc("POST /items/{id}/finish", func(w http.ResponseWriter, r *http.Request) {
		found, err := s.queue.finish(r.Context(), r.PathValue("id"))
		answer(w, "", found, err)
	})
	mux.HandleFunc("POST /items/{id}/reopen", func(w http.ResponseWriter, r *http.Request) {
		found, err := s.queue.reopen(r.Context(), r.PathValue("id"))
		answer(w, "", found, err)
	})
	return mux
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	value, _, err := s.cache.read(r.Context(), r.PathValue("field"))
	if value == nil {
		answer(w, "", false, err)
		return
	}
	answer(w, *value, true, err)
}

func (s *service) put(w http.ResponseWriter, r *http.Request) {
	ttl, err := time.ParseDuration(r.URL.Query().Get("ttl"))
	if err != nil || ttl < time.Millisecond {
		http.Error(w, "ttl must be a duration of at least 1ms, as in ?ttl=1.5s", http.StatusBadRequest)
		return
	}
	value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	_, err = s.cache.write(r.Context(), r.PathValue("field"), string(value), ttl)
	answer(w, "", true, err)
}

func answer(w http.ResponseWriter, body string, found bool, err error) {
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadGateway)
	case !found:
		http.Error(w, "not here", http.StatusNotFound)
	default:
		_, _ = io.WriteString(w, body)
	}
}
