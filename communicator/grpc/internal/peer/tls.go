package peer

// The TLS handshake, at both ends.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/f8949c05/orchestrator/communicator/grpc/internal/identity"
)

// Security is the result of a handshake. A server does not fail a handshake because
// of the client's certificate. It stores the problem and returns it at the first
// call, because a client that is rejected during the handshake never learns the
// reason.
type Security struct {
	Plaintext  bool
	principals []identity.Principal // identities of the peer's certificate
	refusal    error                // problem of the peer's certificate
	refusals   *refusalLog
}

// AuthType implements [credentials.AuthInfo].
func (*Security) AuthType() string { return "orchestrator" }

// tlsConfig returns the configuration for both ends. Sessions are never resumed,
// because that would reuse the result of an earlier certificate check.
func tlsConfig(m *material) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		Certificates:           []tls.Certificate{m.certificate},
		SessionTicketsDisabled: true,
	}
}

// tlsCredentials are the TLS credentials of one server, or of one client's connections.
type tlsCredentials struct {
	*Credentials
	refusals *refusalLog
	serves   identity.Role      // of a server: the role of the peers that it admits; 0: all
	want     identity.Principal // of a client
	failure  *handshakeFailure  // of a client
}

// Info implements [credentials.TransportCredentials].
func (t *tlsCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone returns the same credentials, which do not change.
func (t *tlsCredentials) Clone() credentials.TransportCredentials { return t }

// OverrideServerName does nothing, because DNS names are ignored.
func (t *tlsCredentials) OverrideServerName(string) error { return nil }

// ServerHandshake accepts any TLS client. It names no authorities to the client.
// Otherwise a client with a certificate of another authority would present none, and
// could not be told the reason.
func (t *tlsCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer shaken(raw)
	var m *material // read when the client has said something
	conn := tls.Server(raw, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		m = t.current(t.refusals.logger)
		config := tlsConfig(m)
		config.ClientAuth = tls.RequestClientCert
		return config, nil
	}})
	if err := conn.Handshake(); err != nil {
		if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
			err = fmt.Errorf("refused by peer, see its log: %w", err)
		}
		err = fmt.Errorf("TLS handshake: %w", err) // says if the peer does not use TLS
		t.refusals.log(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		err := errors.New("peer does not request HTTP/2 (ALPN h2)")
		t.refusals.log(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	found := &Security{refusals: t.refusals}
	var until time.Time
	found.principals, until, found.refusal = t.verify(m, state.PeerCertificates, x509.ExtKeyUsageClientAuth, time.Now())
	if found.refusal != nil {
		t.refusals.log(raw.RemoteAddr(), found.refusal)
		return metered(conn, raw, t.refusals), found, nil
	}
	if t.serves != 0 && !slices.ContainsFunc(found.principals, func(p identity.Principal) bool { return p.Role == t.serves }) {
		return metered(conn, raw, t.refusals), found, nil // its calls are refused, and it stays pending until its time is up
	}
	if err := admit(raw, found.principals, until); err != nil {
		t.refusals.log(raw.RemoteAddr(), err)
		return nil, nil, err
	}
	return metered(conn, raw, t.refusals), found, nil
}

// ClientHandshake accepts only the server t.want.
func (t *tlsCredentials) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := t.current(t.refusals.logger)
	config := tlsConfig(m)
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.certificate, nil }
	config.InsecureSkipVerify = true // crypto/tls would check a DNS name; VerifyConnection verifies the chain
	var until time.Time
	config.VerifyConnection = func(state tls.ConnectionState) error {
		var err error
		until, err = t.verifyServer(m, state.PeerCertificates, t.want, time.Now())
		return err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if !errors.Is(err, ErrCertificate) {
			err = fmt.Errorf("TLS handshake with %s: %w: does the other side use TLS (WithCredentials)?", raw.RemoteAddr(), err)
		}
		return nil, nil, t.failure.remember(err)
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, nil, t.failure.remember(fmt.Errorf("%s does not use HTTP/2 (ALPN h2)", raw.RemoteAddr()))
	}
	// Nothing is read after a certificate has expired.
	if err := raw.SetReadDeadline(until); err != nil {
		return nil, nil, t.failure.remember(err)
	}
	return conn, nil, nil
}
