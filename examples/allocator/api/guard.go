package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// guard rejects web pages of other origins, requests with a foreign Host, and
// clients without the token.
func (a *api) guard(next http.Handler) http.Handler {
	origin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x := &exchange{ResponseWriter: w, api: a, r: r}
		open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" // they reveal nothing, and probes have no token
		switch {
		case origin.Check(r) != nil:
			x.fail(refuse(http.StatusForbidden, "requests from web pages of another origin are not allowed"))
		case !open && a.Token != "" && !a.known(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="allocator"`)
			if strings.HasPrefix(r.URL.Path, "/dashboard/") { // for browsers
				w.Header().Add("WWW-Authenticate", `Basic realm="allocator", charset="UTF-8"`)
			}
			x.fail(refuse(http.StatusUnauthorized, "the bearer token is required"))
		case !open && a.Token == "" && !a.local(r.Host):
			x.fail(refuse(http.StatusMisdirectedRequest, "without a token, Host must be a loopback address or a name that the process was started with"))
		default:
			next.ServeHTTP(x, r)
		}
	})
}

// known reports whether the request has the token, as Bearer or as the password of Basic. It
// compares hashes of equal length in constant time, so that the time reveals nothing.
func (a *api) known(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if _, password, basic := r.BasicAuth(); basic {
		token = password
	} else if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// local reports whether host is a loopback address or one of Hosts. A web page whose
// own name resolves to this machine (DNS rebinding) sends that name as Host, and
// would count as the same origin.
func (a *api) local(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if ip, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil && ip.Unmap().IsLoopback() {
		return true
	}
	return host == "localhost" || slices.Contains(a.Hosts, strings.Trim(host, "[]"))
}
