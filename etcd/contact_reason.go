package etcd

// Why there is no connection to etcd, in words that say what to change.

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

// reason asks once more, without waiting for a connection, and returns why there is
// none; nil where that is not known. The calls of etcd's client wait for one, and
// say only that their time is up.
//
// gRPC's text tells of a certificate that the client refuses. It does not tell of
// one that the server misses, nor that only one end speaks TLS: the server then
// closes the connection, and what it said may be lost with that. So the
// endpoints are asked what they speak.
func (s *settings) reason(ctx context.Context, c *clientv3.Client) error {
	conn := c.ActiveConnection()
	if conn == nil {
		return nil // a client that was made of something else
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

// security is what a server asks of a connection.
type security int

const (
	securityUnknown security = iota
	plaintext
	serverTLS
	mutualTLS // it asks for the client's certificate
)

// mismatch returns what is wrong with a client's connection to a server, given
// gRPC's text; empty: the text says it, or it is not known.
func mismatch(text string, server security) string {
	// So gRPC says that a client which speaks TLS has not agreed with the server.
	refused := strings.Contains(text, "authentication handshake failed")
	switch {
	case server == plaintext && refused:
		return "speaks plaintext, and the client TLS: see its Config.TLS and the scheme of its endpoints"
	case server == serverTLS && !refused:
		return "speaks TLS, and the client plaintext: see its Config.TLS and the scheme of its endpoints"
	case server == mutualTLS && !refused:
		return "speaks TLS and asks for a client certificate: see the client's Config.TLS and the scheme of its endpoints"
	}
	return ""
}

// askSecurity finds out what an endpoint speaks, without a secret and without
// trust: it only begins a conversation, in plaintext and in TLS.
func askSecurity(ctx context.Context, endpoint string) security {
	_, address, found := strings.Cut(endpoint, "://")
	if !found {
		address = endpoint
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return securityUnknown // a unix socket, or something else without TLS
	}
	if answersPlaintext(ctx, address) {
		return plaintext
	}
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return securityUnknown
	}
	defer func() { _ = conn.Close() }() // nothing was sent that matters
	found = false
	client := tls.Client(conn, &tls.Config{
		ServerName: host, NextProtos: []string{"h2"},
		InsecureSkipVerify: true, //nolint:gosec // only to ask what it speaks: nothing is sent
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			found = true
			return &tls.Certificate{}, nil
		},
	})
	switch err := client.HandshakeContext(ctx); {
	case found: // under TLS 1.2 the handshake then fails
		return mutualTLS
	case err == nil:
		return serverTLS
	}
	return securityUnknown
}

// answersPlaintext reports whether a server answers the first words of HTTP/2.
func answersPlaintext(ctx context.Context, address string) bool {
	conn, err := dialTCP(ctx, address)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }() // nothing was sent that matters
	const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
	if _, err := io.WriteString(conn, preface); err != nil {
		return false
	}
	header := make([]byte, 9) // of a frame; a server begins with its settings
	_, err = io.ReadFull(conn, header)
	return err == nil && header[0] == 0 && header[3] == 4
}

// dialTCP connects for no longer than ctx, and for half a second at most, so that a
// server that says nothing leaves time for the next question.
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
