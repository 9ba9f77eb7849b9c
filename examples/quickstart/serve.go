// An HTTP server, used by the workers, the target and the metrics.

package main

import (
	"errors"
	"net"
	"net/http"
)

// loopback is an address on this machine, with a port that the kernel chooses.
const loopback = "127.0.0.1:0"

type server struct {
	url  string // without a trailing slash
	srv  *http.Server
	done chan error
}

// serve serves h at address until the server is stopped.
func serve(address string, h http.Handler) (*server, error) {
	ln, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	s := &server{
		url:  "http://" + ln.Addr().String(),
		srv:  &http.Server{Handler: h, ReadHeaderTimeout: callTimeout},
		done: make(chan error, 1),
	}
	go func() { s.done <- s.srv.Serve(ln) }()
	return s, nil
}

// stop closes the server and every connection to it.
func (s *server) stop() error {
	err := s.srv.Close()
	if end := <-s.done; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
