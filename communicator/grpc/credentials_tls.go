package grpc

// The TLS handshake, for both ends.

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"google.golang.org/grpc/credentials"
)

// security is what a handshake found out about the other end of a connection. A
// server keeps what is wrong with a client's certificate, and tells it at the
// first call: a client that is turned away during the handshake never learns why.
type security struct {
	credentials.CommonAuthInfo
	plaintext  bool
	parties    []party // whom its certificate stands for
	refusal    error   // what is wrong with it
	complaints *complaints
}

// AuthType says what kind of security this is.
func (s *security) AuthType() string {
	if s.plaintext {
		return "plaintext"
	}
	return "tls"
}

// tlsConfig is what both ends have in common. Sessions are never resumed, since
// that would bring back what was found of a certificate at another time.
func tlsConfig(m *material) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{"h2"},
		Certificates:           []tls.Certificate{m.certificate},
		SessionTicketsDisabled: true,
	}
}

// overTLS are the credentials of one server, or of one client's connections.
type overTLS struct {
	*Credentials
	complaints *complaints
	serves     role     // a server's: it admits connections of this role; 0: of all
	want       party    // a client's
	failure    *failure // a client's
}

func (t *overTLS) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

func (t *overTLS) Clone() credentials.TransportCredentials { return t }

func (t *overTLS) OverrideServerName(string) error { return nil } // names mean nothing here

// ServerHandshake makes a connection with whoever speaks TLS. No authorities are
// named to the client, since it would then show no certificate in place of one
// of another authority, and could not be told so.
func (t *overTLS) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := t.current(t.complaints.logger)
	config := tlsConfig(m)
	config.ClientAuth = tls.RequestClientCert
	conn := tls.Server(raw, config)
	if err := conn.Handshake(); err != nil {
		err = serverProblem(raw, err)
		t.complaints.log(raw, err)
		return nil, nil, err
	}
	state := conn.ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		err := errors.New("it does not ask for HTTP/2 (ALPN h2)")
		t.complaints.log(raw, err)
		return nil, nil, err
	}
	found := &security{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		complaints:     t.complaints,
	}
	var until time.Time
	found.parties, until, found.refusal = t.verify(m, state.PeerCertificates, x509.ExtKeyUsageClientAuth, time.Now())
	if found.refusal != nil {
		t.complaints.log(raw, found.refusal)
		return conn, found, nil
	}
	if t.serves != 0 && !slices.ContainsFunc(found.parties, func(p party) bool { return p.role == t.serves }) {
		return conn, found, nil // its calls are refused, and it is pending until its time is up
	}
	if err := admit(raw, found.parties, until); err != nil {
		t.complaints.log(raw, err)
		return nil, nil, err
	}
	return conn, found, nil
}

// alertNoTLS tells a client in TLS's words that it has to use TLS: the alert that
// the version of the protocol is not supported.
const alertNoTLS = "\x15\x03\x01\x00\x02\x02\x46"

func serverProblem(raw net.Conn, err error) error {
	if header, ok := errors.AsType[tls.RecordHeaderError](err); ok && header.Conn != nil {
		_, _ = io.WriteString(raw, alertNoTLS) // the connection is closed in any case
		if header.RecordHeader == [5]byte([]byte("PRI *")) {
			return errors.New("it speaks plaintext, where TLS is spoken: it lacks WithCredentials")
		}
		return fmt.Errorf("it does not speak TLS: %w", err)
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "remote error" {
		return fmt.Errorf("TLS handshake: the other end refuses this one, and its log says why: %w", err)
	}
	return fmt.Errorf("TLS handshake: %w", err)
}

// ClientHandshake makes a connection with t.want only.
func (t *overTLS) ClientHandshake(ctx context.Context, _ string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	m := t.current(t.complaints.logger)
	config := tlsConfig(m)
	config.Certificates = nil
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &m.certificate, nil }
	config.InsecureSkipVerify = true // that looks for a DNS name; the chain is verified here:
	var until time.Time
	config.VerifyConnection = func(state tls.ConnectionState) error {
		var err error
		until, err = t.verifyServer(m, state.PeerCertificates, t.want, time.Now())
		return err
	}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			err = fmt.Errorf("%s does not speak TLS: %w", raw.RemoteAddr(), err)
		}
		return nil, nil, t.failure.remember(err)
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		return nil, nil, t.failure.remember(fmt.Errorf("%s does not speak HTTP/2 (ALPN h2)", raw.RemoteAddr()))
	}
	// What has expired is not read from any more.
	if err := raw.SetReadDeadline(until); err != nil {
		return nil, nil, t.failure.remember(err)
	}
	t.failure.forget()
	return conn, &security{CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}
