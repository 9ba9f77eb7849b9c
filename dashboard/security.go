package dashboard

// Who may do what.

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// accessKey is the key of the Access in the context of an admitted request.
type accessKey struct{}

// admit returns an error if the request may not do what its method says. It sets the header
// that makes a browser ask for a token.
func (h *Handler) admit(w http.ResponseWriter, r *http.Request, access Access) *api.Error {
	writes := r.Method != http.MethodGet && r.Method != http.MethodHead
	switch {
	case access < ReadAccess && h.tokens != nil:
		w.Header().Set("WWW-Authenticate", `Basic realm="orchestrator", charset="UTF-8"`)
		return problem(http.StatusUnauthorized, "The token is missing or not known. A browser sends it as the password, with any user name.")
	case access < ReadAccess && h.authorize != nil:
		return problem(http.StatusForbidden, "The request is not authorized.")
	case access < ReadAccess:
		return problem(http.StatusForbidden, "Only requests from the same machine to a loopback address are answered. "+
			"The options WithToken and WithAuthorize allow others.")
	case r.Header.Get("Sec-Fetch-Site") == "cross-site" && r.Header.Get("Sec-Fetch-Dest") != "document":
		// A link leads here, but no page makes its readers' browsers compute plans.
		return problem(http.StatusForbidden, "The request comes from a page of another site.")
	case writes && access < WriteAccess:
		return problem(http.StatusForbidden, "The request is authorized to read only.")
	case writes:
		if err := h.crossOrigin.Check(r); err != nil {
			return problem(http.StatusForbidden, "The request comes from a page of another origin.")
		}
	}
	return nil
}

// access returns what a request may do, whatever the handler offers.
func (h *Handler) access(r *http.Request) Access {
	switch {
	case h.authorize != nil:
		return h.authorize(r)
	case h.tokens != nil:
		return h.tokenAccess(r)
	case isLocal(r):
		return WriteAccess
	}
	return NoAccess
}

// tokenAccess compares hashes, so that the time depends on neither the token nor its length.
func (h *Handler) tokenAccess(r *http.Request) Access {
	_, token, ok := r.BasicAuth()
	if !ok {
		scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return NoAccess
		}
		token = strings.TrimSpace(rest)
	}
	sum, known := sha256.Sum256([]byte(token)), 0
	for i := range h.tokens {
		known |= subtle.ConstantTimeCompare(sum[:], h.tokens[i][:])
	}
	if known == 0 {
		return NoAccess
	}
	return WriteAccess
}

// isLocal reports whether the request comes from this machine, not through a proxy, and is
// meant for it. A foreign Host with a loopback peer is a page of another site whose name was
// made to resolve to this machine.
func isLocal(r *http.Request) bool {
	for _, header := range []string{"Forwarded", "Via", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(header) != "" {
			return false
		}
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return true // the file's permissions say who may connect
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return false
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}
