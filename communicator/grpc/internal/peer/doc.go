// Package peer secures and limits the connections between a manager and its workers,
// at both ends.
//
// [Settings.NewServer] returns a server and a listener, [Settings.Dial] a client's
// connection. With [Credentials], a handshake verifies the certificate of the other end
// and takes its identities from it (tls.go, verify.go). Without, connections stay on
// loopback (plaintext.go). The listener closes connections that are silent while others
// wait (conn_limiter.go). Each call is checked against the identities of its caller,
// before its message is read (authorizer.go).
package peer
