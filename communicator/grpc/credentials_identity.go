package grpc

// Whom a certificate stands for.

import (
	"crypto/x509"
	"fmt"
	"net/url"
	"strings"
)

// ManagerURI is the URI among a certificate's subject alternative names that
// makes it a manager's.
const ManagerURI = "orchestrator://manager"

const workerPrefix = "orchestrator://worker/"

// WorkerURI returns the URI among a certificate's subject alternative names that
// makes it that of the worker of a name. What may not stand in a URI, a slash
// included, is escaped: any name has one.
func WorkerURI(name string) string { return workerPrefix + url.PathEscape(name) }

// role is what a peer may do.
type role uint8

const (
	roleManager role = iota + 1 // command workers
	roleWorker                  // speak for the worker of its name
)

// party is who is at one end of a connection.
type party struct {
	role role
	name string // a worker's
}

func (p party) String() string {
	if p.role == roleManager {
		return "a manager"
	}
	return fmt.Sprintf("worker %q", clip(p.name))
}

// alternativeNames is the default of WithIdentities.
func alternativeNames(certificate *x509.Certificate) []string {
	uris := make([]string, len(certificate.URIs))
	for i, u := range certificate.URIs {
		uris[i] = u.String()
	}
	return uris
}

// partiesOf leaves aside what is no identity of this package.
func partiesOf(uris []string) []party {
	var parties []party
	for _, uri := range uris {
		if uri == ManagerURI {
			parties = append(parties, party{role: roleManager})
			continue
		}
		escaped, ok := strings.CutPrefix(uri, workerPrefix)
		if !ok {
			continue
		}
		if name, err := url.PathUnescape(escaped); err == nil && checkName("worker", name) == nil {
			parties = append(parties, party{role: roleWorker, name: name})
		}
	}
	return parties
}

// describe lists parties for people to read.
func describe(parties []party) string {
	const most = 5
	texts := make([]string, 0, most+1)
	for i, p := range parties {
		if i == most {
			texts = append(texts, fmt.Sprintf("%d others", len(parties)-most))
			break
		}
		texts = append(texts, p.String())
	}
	return strings.Join(texts, ", ")
}

// clip keeps what others say short: it stands in errors and logs.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
