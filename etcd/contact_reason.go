package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// reason makes one more request, without waiting for a connection, and returns the
// error of that request. It returns nil if the reason is unknown. The calls of
// etcd's client wait for a connection, and report only a timeout.
//
// gRPC's text mentions a certificate that the client rejects. It does not mention a
// client certificate that the server requires, or that only one end speaks TLS. In
// these cases the server closes the connection, and its alert may be lost. So reason
// asks the endpoints what they speak.
func (s *settings) reason(ctx context.Context, c *clientv3.Client) error {
	conn := c.ActiveConnection()
	if conn == nil {
		return nil // a client without a real connection
	}
	ctx, cancel := context.WithTimeout(ctx, min(s.timeout, time.Second))
	defer cancel()
	_, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(s.layout.Format()), Serializable: true},
		grpc.WaitForReady(false))
	if status.Code(err) != codes.Unavailable {
		return nil
	}
	text := status.Convert(err).Message()
	for _, endpoint := range c.Endpoints() {
		if advice := mismatch(text, askSecurity(ctx, endpoint)); advice != "" {
			return errors.New(text + ": " + endpoint + " " + advice)
		}
	}
	return errors.New(text)
}

// security is the kind of connection that a server requires.
type security int

const (
	securityUnknown security = iota
	plaintext
	serverTLS
	mutualTLS // TLS with a client certificate
)

// mismatch returns advice on a client's connection to a server, given gRPC's text.
// It returns "" if the text is sufficient or the problem unknown.
func mismatch(text string, server security) string {
	// gRPC's text if a client that speaks TLS could not agree with the server.
	refused := strings.Contains(text, "authentication handshake failed")
	switch {
	case server == plaintext && refused:
		return "speaks plaintext but the client TLS: check the client's Config.TLS and the scheme of its endpoints"
	case server == serverTLS && !refused:
		return "speaks TLS but the client plaintext: check the client's Config.TLS and the scheme of its endpoints"
	case server == mutualTLS && !refused:
		return "speaks TLS and requires a client certificate: check the client's Config.TLS and the scheme of its endpoints"
	}
	return ""
}

// askSecurity finds out what an endpoint speaks. It only begins a handshake, in
// plaintext and in TLS, so it reveals no secret and needs no trust.
func askSecurity(ctx context.Context, endpoint string) security {
	_, address, found := strings.Cut(endpoint, "://")
	if !found {
		address = endpoint
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return securityUnknown // not host:port, such as a unix socket
	}
	if answersPlaintext(ctx, address) {
		return plaintext
	}
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return securityUnknown
	}
	defer func() { _ = conn.Close() }() // no data was sent
	found = false
	client := tls.Client(conn, &tls.Config{
		ServerName: host, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, //nolint:gosec // a probe only: no data is sent
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			found = true
			return &tls.Certificate{}, nil
		},
	})
	switch err := client.HandshakeContext(ctx); {
	case found: // the handshake fails then under TLS 1.2
		return mutualTLS
	case err == nil:
		return serverTLS
	}
	return securityUnknown
}

// answersPlaintext reports whether a server answers the HTTP/2 preface in plaintext.
func answersPlaintext(ctx context.Context, address string) bool {
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // no data was sent
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, preface); err != nil {
		return false
	}
	header := make([]byte, 9) // of the first frame, which must be SETTINGS
	_, err = io.ReadFull(conn, header)
	return err == nil && header[0] == 0 && header[3] == 4
}

// dialTCP connects until ctx ends, for at most half a second, so that a silent
// server leaves time for the next probe.
func dialTCP(ctx context.Context, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second/2)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := conn.SetDeadline(deadline); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}
