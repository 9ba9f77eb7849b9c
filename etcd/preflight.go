package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/f8949c05/orchestrator/etcd/internal/keys"
	"github.com/f8949c05/orchestrator/internal/backoff"
	"github.com/f8949c05/orchestrator/internal/loglimit"
)

// preflight makes the first contact with etcd. It verifies that etcd answers and that
// the prefix is ours.
type preflight struct {
	settings
	client *clientv3.Client
	passed atomic.Bool // a contact has succeeded
}

// enter makes the first contact unless it has succeeded before. Concurrent calls may
// each make the contact, which is harmless.
func (p *preflight) enter(ctx context.Context) error {
	if p.passed.Load() {
		return nil
	}
	return p.contact(ctx)
}

// await is enter for a call that retries until ctx ends.
func (p *preflight) await(ctx context.Context) error {
	if p.passed.Load() {
		return nil
	}
	return p.awaitContact(ctx)
}

// awaitContact makes a contact. If etcd does not answer, it retries until ctx ends
// and returns the cause of ctx.
func (p *preflight) awaitContact(ctx context.Context) error {
	var silent loglimit.Limiter
	retry := backoff.New()
	for {
		err := p.contact(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil && silent.Reset():
			p.logger.Info("etcd answers", "endpoints", p.client.Endpoints())
			return nil
		case !errors.Is(err, ErrUnreachable):
			return err
		}
		if omitted, ok := silent.Take(time.Now(), ""); ok {
			p.logger.Warn("etcd does not answer, retrying", "err", err, loglimit.Omitted(omitted))
		}
		if !retry.Wait(ctx) {
			return context.Cause(ctx)
		}
	}
}

// contact checks that etcd answers and that the prefix is ours. An empty prefix
// becomes ours. contact retries transient errors until the dial timeout; the result
// then wraps ErrUnreachable.
func (p *preflight) contact(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var why error // the last error that etcd returned
	retry := backoff.New()
	for {
		format, err := p.format(limited)
		switch {
		case err == nil:
			err = p.checkFormat(format)
			p.passed.Store(err == nil)
			return err
		case permanent(err):
			return fmt.Errorf("first contact with etcd at %v: %w", p.client.Endpoints(), err)
		case limited.Err() == nil:
			why = err
		}
		if !retry.Wait(limited) {
			break
		}
	}
	limit := fmt.Errorf("within %v: %w", p.timeout, context.Cause(limited))
	if ctx.Err() != nil {
		limit = context.Cause(ctx)
	} else if why == nil {
		why = p.reason(ctx)
	}
	if why != nil {
		return fmt.Errorf("%w: %v: %w: %w", ErrUnreachable, p.client.Endpoints(), limit, why)
	}
	return fmt.Errorf("%w: %v: %w", ErrUnreachable, p.client.Endpoints(), limit)
}

// permanent reports whether retries cannot help: etcd does not know the user or
// denies a right, or the client was closed.
func permanent(err error) bool {
	code := status.Code(err)
	if known, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = known.Code()
	}
	switch code {
	case codes.InvalidArgument, codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition, codes.Unimplemented, codes.Canceled:
		// The client gets a new token, such as after a restart of etcd.
		return !isAny(err, rpctypes.ErrInvalidAuthToken, rpctypes.ErrAuthOldRevision)
	}
	return false
}

// checkFormat returns an error unless format, the value of the format key, marks the
// prefix as ours. nil means that the prefix contains keys, but no format key.
func (p *preflight) checkFormat(format []byte) error {
	switch {
	case format == nil:
		return fmt.Errorf("%w: %s holds keys, but not %s", ErrForeignPrefix, p.prefix, p.layout.Format())
	case string(format) != keys.Format:
		return fmt.Errorf("%w: %s is %q, not %q", ErrForeignPrefix, p.layout.Format(), format, keys.Format)
	}
	return nil
}

// format returns the value of the format key. If the prefix is empty, format first
// marks it as ours. If the prefix contains other keys only, format returns nil.
//
// It takes three requests instead of one transaction, and usually returns after the
// first. A comparison that the prefix is empty makes etcd read every key and value
// in it, while all other requests wait.
func (p *preflight) format(ctx context.Context) ([]byte, error) {
	key := p.layout.Format()
	got, err := p.client.Get(ctx, key)
	if err != nil {
		return nil, err
	}
	if len(got.Kvs) > 0 {
		return got.Kvs[0].Value, nil
	}
	looked, err := p.client.Txn(ctx).Then(
		clientv3.OpGet(key),
		clientv3.OpGet(p.prefix, clientv3.WithPrefix(), clientv3.WithLimit(1), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, err
	}
	if first(looked.Responses[1]) != nil {
		return first(looked.Responses[0]).GetValue(), nil // set by another process in between, or nil
	}
	made, err := p.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(p.prefix), "=", 0).WithPrefix()). // the prefix is empty
		Then(clientv3.OpPut(key, keys.Format)).
		Else(clientv3.OpGet(key)).
		Commit()
	switch {
	case err != nil:
		return nil, err
	case made.Succeeded:
		return []byte(keys.Format), nil
	}
	return first(made.Responses[0]).GetValue(), nil
}

// errNotOurs reports that the prefix, which was ours at the first contact, is no
// longer marked: another etcd without keys has replaced the last. A transaction that
// puts the first key of its kind compares that the prefix is marked. Without that
// check the key would make the prefix look like another program's to all later
// processes.
var errNotOurs = errors.New("prefix is not set up")

// reason makes one more request, without waiting for a connection, and returns the
// error of that request. It returns nil if the reason is unknown. The calls of
// etcd's client wait for a connection, and report only a timeout.
//
// gRPC's text mentions a certificate that the client rejects. It does not mention a
// client certificate that the server requires, or that only one end speaks TLS. In
// these cases the server closes the connection, and its alert may be lost. So reason
// asks the endpoints what they speak.
func (p *preflight) reason(ctx context.Context) error {
	conn := p.client.ActiveConnection()
	if conn == nil {
		return nil // a client without a real connection
	}
	ctx, cancel := context.WithTimeout(ctx, min(p.timeout, time.Second))
	defer cancel()
	_, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(p.layout.Format()), Serializable: true},
		grpc.WaitForReady(false))
	if status.Code(err) != codes.Unavailable {
		return nil
	}
	text := status.Convert(err).Message()
	for _, endpoint := range p.client.Endpoints() {
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
