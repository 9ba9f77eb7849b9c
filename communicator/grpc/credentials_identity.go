package grpc

// The identities in a certificate.

import (
	"crypto/x509"
	"encoding/asn1"
	"fmt"
	"net/url"
	"strings"
)

// ManagerURI is the URI among a certificate's subject alternative names that
// identifies a manager.
const ManagerURI = "orchestrator://manager"

const workerPrefix = "orchestrator://worker/"

// WorkerURI returns the URI among a certificate's subject alternative names that
// identifies the worker of a name. Bytes that are not allowed in a URI, and slashes,
// are escaped, so every name has a URI. Other spellings of the same URI are not
// accepted.
func WorkerURI(name string) string { return workerPrefix + url.PathEscape(name) }

// role determines what a peer may do.
type role uint8

const (
	roleManager role = iota + 1 // commands workers
	roleWorker                  // acts as the worker of its name
)

// principal is the identity of one end of a connection.
type principal struct {
	role role
	name string // of a worker
}

func (p principal) String() string {
	if p.role == roleManager {
		return "a manager"
	}
	return fmt.Sprintf("worker %q", clip(p.name))
}

// alternativeNames is the default of WithIdentities. It returns the URIs as spelled
// in the certificate. The URIs field of x509.Certificate has passed through net/url,
// which treats ORCHESTRATOR://manager as orchestrator://manager.
func alternativeNames(certificate *x509.Certificate) (uris []string) {
	const uri = 6 // the tag of a URI among the names
	for _, extension := range certificate.Extensions {
		if !extension.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &names); err != nil {
			return nil // crypto/x509 has refused such a certificate
		}
		for _, name := range names {
			if name.Class == asn1.ClassContextSpecific && name.Tag == uri {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	return uris
}

// principalsOf returns the identities among the URIs. It ignores every other URI and
// every other spelling.
func principalsOf(uris []string) []principal {
	var principals []principal
	for _, uri := range uris {
		if uri == ManagerURI {
			principals = append(principals, principal{role: roleManager})
			continue
		}
		escaped, ok := strings.CutPrefix(uri, workerPrefix)
		if !ok {
			continue
		}
		name, err := url.PathUnescape(escaped)
		if err == nil && WorkerURI(name) == uri && checkName("worker", name) == nil {
			principals = append(principals, principal{role: roleWorker, name: name})
		}
	}
	return principals
}

// describe returns a readable list of identities.
func describe(principals []principal) string {
	const most = 5
	texts := make([]string, 0, most+1)
	for i, p := range principals {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d others", len(principals)-most))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// clip shortens text from a peer for errors and logs.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
