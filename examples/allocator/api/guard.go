package api

// What every request has to pass before it is looked at.

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"slices"
	"strings"
	"time"
)

// guard keeps out web pages of other origins, and whoever does not know the
// token, and gives everyone else a limited time.
func (a *api) guard(next http.Handler) http.Handler {
	inside := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" && r.URL.Path != "/readyz" && !a.known(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="allocator"`)
			a.problem(w, r, http.StatusUnauthorized, "this needs the bearer token")
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), patience)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.problem(w, r, http.StatusForbidden, "web pages of another origin may not do this")
	}))
	return origin.Handler(inside)
}

// known compares in a time that tells nothing: the sums are of one length,
// whatever was sent.
func (a *api) known(r *http.Request) bool {
	if a.Token == "" {
		return true
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return false
	}
	got, want := sha256.Sum256([]byte(token)), sha256.Sum256([]byte(a.Token))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
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
		h, ok := m[method]
		if !ok {
			w.Header().Set("Allow", strings.Join(allowed, ", "))
			a.problem(w, r, http.StatusMethodNotAllowed, path+" knows "+strings.Join(allowed, ", "))
			return
		}
		h(w, r)
	})
}

// Limits is how long a client may take. Zero: what is said at each.
type Limits struct {
	Header time.Duration // to send a request's head: 5 s
	Body   time.Duration // to send all of a request: 30 s
	Answer time.Duration // to take the answer: 60 s
}

// NewServer returns a server that gives slow clients up.
func NewServer(h http.Handler, l Limits) *http.Server {
	or := func(d, otherwise time.Duration) time.Duration {
		if d == 0 {
			return otherwise
		}
		return d
	}
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: or(l.Header, 5*time.Second),
		ReadTimeout:       or(l.Body, 30*time.Second),
		WriteTimeout:      or(l.Answer, time.Minute),
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
	}
}
