package stage

import (
	"errors"
	"net"
	"net/http"
	"time"
)

// Loopback is an address on this machine only, with a port that the kernel chooses.
const Loopback = "127.0.0.1:0"

// Server is an HTTP server that runs.
type Server struct {
	URL  string // without a trailing slash
	srv  *http.Server
	done chan error
}

// Serve serves h at an address until Close.
func Serve(address string, h http.Handler) (*Server, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &Server{
		URL:  "http://" + listener.Addr().String(),
		srv:  &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second},
		done: make(chan error, 1),
	}
	go func() { s.done <- s.srv.Serve(listener) }()
	return s, nil
}

// Close closes the server and every connection to it.
func (s *Server) Close() error {
	err := s.srv.Close()
	if end := <-s.done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
