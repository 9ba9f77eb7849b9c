package peer

// Connections without TLS, and their limits.

import (
	"bytes"
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
	defer shaken(raw)
	first := make([]byte, len(preface))
	_, err := io.ReadFull(raw, first)
	if err == nil && string(first) != preface {
		err = fmt.Errorf("peer does not speak plaintext gRPC, its first bytes are %q: does it use TLS (WithCredentials)?", first)
	}
	if err == nil {
		err = admit(raw, nil, time.Time{})
	}
	if err != nil {
		p.refusals.log(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	whole := &replayConn{raw, io.MultiReader(bytes.NewReader(first), raw)}
	return metered(whole, raw, p.refusals), &Security{Plaintext: true}, nil
}

// replayConn is a connection whose first bytes were already read.
type replayConn struct {
	net.Conn
	whole io.Reader
}

// Read returns the bytes that were read before, and then reads on.
func (r *replayConn) Read(b []byte) (int, error) { return r.whole.Read(b) }

// ClientHandshake checks the actual remote address of the connection, whatever
// address was dialed.
func (p *plaintextCredentials) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !p.anywhere && !isLocal(raw.RemoteAddr()) {
		return nil, nil, p.failure.remember(fmt.Errorf("connect to %s: %w", raw.RemoteAddr(), ErrPlaintext))
	}
	return raw, nil, nil
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
