package replica

// Calls over gRPC.

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/worker"
)

// grpcNetwork is the network of a replica without withNetwork.
type grpcNetwork struct {
	listen, advertise string
	options           []grpc.Option
}

func newNetwork(s *settings) (*grpcNetwork, error) {
	n := &grpcNetwork{listen: s.listen, advertise: s.advertise, options: []grpc.Option{grpc.WithLogger(s.log)}}
	switch {
	case s.credentials != nil:
		n.options = append(n.options, grpc.WithCredentials(s.credentials))
	case s.plaintext:
		n.options = append(n.options, grpc.WithPlaintext())
	}
	if _, _, err := net.SplitHostPort(s.listen); err != nil {
		return nil, fmt.Errorf("%w: WithListen(%q): %w", orchestrator.ErrInvalid, s.listen, err)
	}
	return n, nil
}

func (n *grpcNetwork) Serve(ctx context.Context, w *worker.Worker[string]) (address string, served <-chan error, err error) {
	server, err := grpc.NewServer(w, grpc.WithOptions(n.options...), grpc.WithTermTokens())
	if err != nil {
		return "", nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", n.listen)
	if err != nil {
		return "", nil, err
	}
	address, err = advertised(n.advertise, l.Addr())
	if err != nil {
		return "", nil, errors.Join(err, l.Close())
	}
	ended := make(chan error, 1)
	go func() {
		if err := server.Serve(ctx, l); ctx.Err() == nil {
			ended <- err
		}
		close(ended)
	}()
	return address, ended, nil
}

// Caller returns a communicator of the leader.
func (n *grpcNetwork) Caller(c grpc.RevisedContents) (caller, error) {
	return grpc.NewCommunicator(grpc.WithOptions(n.options...), grpc.WithContents(c))
}

// advertised returns the address at which others call a listener.
func advertised(given string, listener net.Addr) (string, error) {
	listening, port, err := net.SplitHostPort(listener.String())
	if err != nil {
		return "", fmt.Errorf("listener at %v: %w", listener, err)
	}
	if given != "" {
		host, at, err := net.SplitHostPort(given)
		if err != nil {
			host, at = given, port
		}
		if at == "0" || at == "" {
			at = port
		}
		return net.JoinHostPort(host, at), nil
	}
	if !net.ParseIP(listening).IsUnspecified() {
		return listener.String(), nil
	}
	ip, err := outbound()
	if err != nil {
		return "", fmt.Errorf("%w: this machine has no address at which others can call it, give WithAdvertise: %w", orchestrator.ErrInvalid, err)
	}
	return net.JoinHostPort(ip.String(), port), nil
}

// outbound returns the address from which this machine reaches others, or a loopback one
// if it has no other.
func outbound() (net.IP, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	found := net.IPv4(127, 0, 0, 1)
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && found.IsLoopback() {
			found = n.IP
		}
	}
	return found, nil
}
