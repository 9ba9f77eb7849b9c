package api

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// guard rejects web pages of other origins, requests with a foreign Host, and
// clients without the token.
func (a *api) guard(next http.Handler) http.Handler {
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" // they reveal nothing, and probes have no token
		switch {
		case !open && a.Token != "" && !a.known(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="allocator"`)
			a.problem(w, r, http.StatusUnauthorized, "the bearer token is required")
		case !open && a.Token == "" && !a.local(r.Host):
			a.problem(w, r, http.StatusMisdirectedRequest,
				"without a token, Host must be a loopback address or a name that the process was started with")
		default:
			next.ServeHTTP(w, r)
		}
	})
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusForbidden, "requests from web pages of another origin are not allowed")
	}))
	protected := origin.Handler(inside)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protected.ServeHTTP(&pacedWriter{ResponseWriter: w, limits: a.Limits}, r)
	})
}

// known reports whether the request has the token. It compares hashes of equal
// length in constant time, so that the time reveals nothing.
func (a *api) known(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
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

// choose dispatches by method. It serves HEAD as GET, and answers an unknown method
// with the allowed ones.
func (a *api) choose(path string, m methods) http.Handler {
	var allowed []string
	for method := range m {
		allowed = append(allowed, method)
		if method == http.MethodGet {
			allowed = append(allowed, http.MethodHead)
		}
	}
	slices.Sort(allowed)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		method := r.Method
		if method == http.MethodHead {
			method = http.MethodGet
		}
		route, ok := m[method]
		if !ok {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.problem(w, r, http.StatusMethodNotAllowed, path+" allows "+strings.Join(allowed, ", "))
			return
		}
		if wrong := route.wrong(r.URL.RawQuery); wrong != "" {
			a.problem(w, r, http.StatusBadRequest, wrong)
			return
		}
		route.handle(w, r)
	})
}

// wrong returns what is wrong with a query, or "". A misspelled parameter is an
// error, because ignoring it could change the wrong thing.
func (p route) wrong(query string) string {
	if p.params == nil {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "invalid query: " + err.Error()
	}
	for name, all := range values {
		switch {
		case !slices.Contains(p.params, name) && len(p.params) == 0:
			return fmt.Sprintf("unknown parameter %q: none are allowed", name)
		case !slices.Contains(p.params, name):
			return fmt.Sprintf("unknown parameter %q: allowed are %s", name, strings.Join(p.params, ", "))
		case len(all) > 1:
			return fmt.Sprintf("%s is given %d times", name, len(all))
		}
	}
	return ""
}
