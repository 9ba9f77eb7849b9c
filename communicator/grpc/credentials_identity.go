package grpc

// Whom a certificate stands for.

import (
	"crypto/x509"
	"encoding/asn1"
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
// included, is escaped: any name has one. Other ways to write the same are not
// accepted.
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

// alternativeNames is the default of WithIdentities: the URIs as they are written in
// the certificate. Those in its field URIs have gone through net/url, which takes
// ORCHESTRATOR://manager for orchestrator://manager.
func alternativeNames(certificate *x509.Certificate) (uris []string) {
	const uri = 6 // the kind of a name
	for _, extension := range certificate.Extensions {
		if !extension.Id.Equal(asn1.ObjectIdentifier{2, 5, 29, 17}) {
			continue
		}
		var names []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &names); err != nil {
			return nil // crypto/x509 has refused it
		}
		for _, name := range names {
			if name.Class == asn1.ClassContextSpecific && name.Tag == uri {
				uris = append(uris, string(name.Bytes))
			}
		}
	}
	return uris
}

// partiesOf leaves aside what is no identity of this package, to the letter.
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
		name, err := url.PathUnescape(escaped)
		if err == nil && WorkerURI(name) == uri && checkName("worker", name) == nil {
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
