package peer

// Connections without TLS, and their limits.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"google.golang.org/grpc/credentials"
)

// ErrPlaintext reports that plaintext would have left the machine. Nothing was sent.
var ErrPlaintext = errors.New("plaintext off loopback: use WithCredentials, or WithPlaintext on a network that is secured by other means")

// plaintextCredentials are the credentials without TLS of one server, or of one client's
// connections.
type plaintextCredentials struct {
	anywhere bool // allowed off loopback
	refusals *refusalLog
	failure  *handshakeFailure // of a client
}

// Info implements [credentials.TransportCredentials].
func (p *plaintextCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "plaintext"}
}

// Clone returns the same credentials, which do not change.
func (p *plaintextCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName does nothing: there is no certificate to check.
func (p *plaintextCredentials) OverrideServerName(string) error { return nil }

// preface begins every HTTP/2 connection.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// ServerHandshake waits for the client's first bytes, so that a client that is
// silent or uses another protocol costs nothing.
func (p *plaintextCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, len(preface))
	n, err := io.ReadAtLeast(raw, first, 1)
	if err == nil && string(first[:n]) == preface[:n] {
		var more int
		more, err = io.ReadFull(raw, first[n:])
		n += more
	}
	switch first = first[:n]; {
	case err != nil && n == 0:
		return nil, nil, err
	case string(first) == preface:
	case n > 2 && first[0] == 22 && first[1] == 3: // a TLS handshake
		_, _ = io.WriteString(raw, emptySettings) // tells the client that this end uses no TLS
		err = errors.New("peer uses TLS instead of plaintext: this end lacks WithCredentials")
	default:
		err = fmt.Errorf("peer does not use gRPC: its first bytes are %q", first)
	}
	if err == nil {
		err = admit(raw, nil, time.Time{})
	}
	if err != nil {
		p.refusals.log(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	return &replayConn{Conn: raw, rest: first}, &Security{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
		Plaintext:      true,
	}, nil
}

// emptySettings is an empty SETTINGS frame, the valid beginning of an HTTP/2 server.
const emptySettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// replayConn is a connection whose first bytes were already read.
type replayConn struct {
	net.Conn
	rest []byte
}

// Read returns the bytes that were read before, and then reads on.
func (r *replayConn) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// ClientHandshake checks the actual remote address of the connection, whatever
// address was dialed.
func (p *plaintextCredentials) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !p.anywhere && !isLocal(raw.RemoteAddr()) {
		return nil, nil, p.failure.remember(fmt.Errorf("connect to %s: %w", raw.RemoteAddr(), ErrPlaintext))
	}
	p.failure.forget()
	return &alertConn{Conn: raw, failure: p.failure}, &Security{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
		Plaintext:      true,
	}, nil
}

// alertConn is a client's connection that detects a TLS alert in the server's first
// bytes.
type alertConn struct {
	net.Conn
	failure *handshakeFailure
	heard   bool // used only by the one goroutine that reads
}

// Read detects the alert in the first bytes.
func (l *alertConn) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.heard || n == 0 {
		return n, err
	}
	l.heard = true
	if n > 1 && b[0] == 21 && b[1] == 3 { // a TLS alert
		return 0, l.failure.remember(fmt.Errorf("%s uses TLS instead of plaintext: this end lacks WithCredentials", l.RemoteAddr()))
	}
	return n, err
}

// isLocal reports whether an address is on this machine. Kinds of addresses that are
// always local count as such; unknown ones do not.
func isLocal(addr net.Addr) bool {
	switch addr.Network() {
	case "unix", "pipe", "bufconn":
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
