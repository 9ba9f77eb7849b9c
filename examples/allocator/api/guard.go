package api

// What every request must pass before it is looked at.

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

// guard keeps out web pages of other origins, requests by names that are not
// this process's, and clients without the token.
func (a *api) guard(next http.Handler) http.Handler {
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		open := r.URL.Path == "/healthz" || r.URL.Path == "/readyz" // they tell nothing, and probes have no token
		switch {
		case !open && a.Token != "" && !a.known(r):
			w.Header().Set("WWW-Authenticate", `Bearer realm="allocator"`)
			a.problem(w, r, http.StatusUnauthorized, "this needs the bearer token")
		case !open && a.Token == "" && !a.local(r.Host):
			a.problem(w, r, http.StatusMisdirectedRequest,
				"without a token, only requests to a loopback address, or to a name that the process was started with, are answered")
		default:
			next.ServeHTTP(w, r)
		}
	})
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusForbidden, "web pages of another origin may not do this")
	}))
	protected := origin.Handler(inside)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protected.ServeHTTP(&pacedWriter{ResponseWriter: w, limits: a.Limits}, r)
	})
}

// known compares in a time that tells nothing: the sums are of one length,
// whatever was sent.
func (a *api) known(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}

// local reports whether a Host is loopback's, or one of Hosts. A web page that
// has its own name resolve to this machine (DNS rebinding) sends that name, and
// counts as of the same origin.
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

// choose answers HEAD as GET, and a method that is not there with those that
// are.
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
			a.problem(w, r, http.StatusMethodNotAllowed, path+" knows "+strings.Join(allowed, ", "))
			return
		}
		if wrong := route.wrong(r.URL.RawQuery); wrong != "" {
			a.problem(w, r, http.StatusBadRequest, wrong)
			return
		}
		route.handle(w, r)
	})
}

// wrong says what is wrong with a query: a parameter that is misspelled would
// otherwise change something else than was meant.
func (p route) wrong(query string) string {
	if p.params == nil {
		return ""
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "the query cannot be read: " + err.Error()
	}
	for name, all := range values {
		switch {
		case !slices.Contains(p.params, name) && len(p.params) == 0:
			return fmt.Sprintf("unknown parameter %q: there are none here", name)
		case !slices.Contains(p.params, name):
			return fmt.Sprintf("unknown parameter %q: want %s", name, strings.Join(p.params, ", "))
		case len(all) > 1:
			return fmt.Sprintf("%s is given %d times", name, len(all))
		}
	}
	return ""
}
