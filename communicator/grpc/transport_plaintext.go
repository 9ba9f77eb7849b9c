package grpc

// Connections without TLS, and where they may lead.

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

// ErrPlaintext says that plaintext would have left the machine: a server was to
// listen, or a connection led, off loopback, with neither [WithCredentials] nor
// [WithPlaintext]. Nothing was sent.
var ErrPlaintext = errors.New("plaintext off loopback: it takes WithCredentials, or WithPlaintext on a network that is safe by itself")

// plainly are the credentials of one server, or of one client's connections,
// without TLS.
type plainly struct {
	anywhere   bool // also off loopback
	complaints *complaints
	failure    *failure // a client's
}

func (p *plainly) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "plaintext"}
}

func (p *plainly) Clone() credentials.TransportCredentials { return p }

func (p *plainly) OverrideServerName(string) error { return nil }

// preface is what every connection of HTTP/2 begins with.
const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// ServerHandshake waits for the client's first words, so that nothing is spent on
// who says nothing, or speaks something else.
func (p *plainly) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
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
		_, _ = io.WriteString(raw, emptySettings) // which says that no TLS is spoken here
		err = errors.New("it speaks TLS, where plaintext is spoken: this end lacks WithCredentials")
	default:
		err = fmt.Errorf("it does not speak gRPC: it begins with %q", first)
	}
	if err == nil {
		err = admit(raw, nil, time.Time{})
	}
	if err != nil {
		p.complaints.log(raw, err)
		return nil, nil, err
	}
	return &replayed{Conn: raw, rest: first}, &security{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
		plaintext:      true,
	}, nil
}

// emptySettings is what an HTTP/2 server's first words may be.
const emptySettings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// replayed is a connection from which something was read already.
type replayed struct {
	net.Conn
	rest []byte
}

func (r *replayed) Read(b []byte) (int, error) {
	if len(r.rest) == 0 {
		return r.Conn.Read(b)
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// ClientHandshake looks where the connection leads, whatever the address was.
func (p *plainly) ClientHandshake(_ context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if !p.anywhere && !isLocal(raw.RemoteAddr()) {
		return nil, nil, p.failure.remember(fmt.Errorf("connect to %s: %w", raw.RemoteAddr(), ErrPlaintext))
	}
	p.failure.forget()
	return &listening{Conn: raw, failure: p.failure}, &security{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity},
		plaintext:      true,
	}, nil
}

// listening is a client's connection that hears from the first words whether the
// server wants TLS.
type listening struct {
	net.Conn
	failure *failure
	heard   bool // by the only goroutine that reads
}

func (l *listening) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if l.heard || n == 0 {
		return n, err
	}
	l.heard = true
	if n > 1 && b[0] == 21 && b[1] == 3 { // a TLS alert
		return 0, l.failure.remember(fmt.Errorf("%s speaks TLS, where plaintext was spoken: this end lacks WithCredentials", l.RemoteAddr()))
	}
	return n, err
}

// isLocal says whether an address is on this machine. What is none of a network
// is so by its kind; whatever is unknown is not.
func isLocal(addr net.Addr) bool {
	switch addr.Network() {
	case "unix", "pipe", "bufconn":
		return true
	}
	at, err := netip.ParseAddrPort(addr.String())
	return err == nil && at.Addr().Unmap().IsLoopback()
}
