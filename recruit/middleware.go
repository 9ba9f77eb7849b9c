package recruit

// For web servers: a goroutine that has answered a request has time to spare.

import (
	"context"
	"net/http"
)

// Middleware returns a handler that calls next and then enlists. A job does not
// delay the response, nor the next request on the same connection.
//
// The draw takes nanoseconds and is made when next has returned. A job that is drawn
// runs in a separate goroutine after the server has ended the request's context,
// when the outermost handler has returned as well. The job's context has the values
// of the request's context but does not end with it. net/http writes the end of the
// response after that, without a signal, so the job may run at the same time.
//
// If next panics, there is no draw. If Close is called before a drawn job has begun,
// the job is dropped and counted as dismissed.
//
// Middleware panics if next is nil, as net/http does for a nil handler, or if the
// Recruiter was not created by New.
func (r *Recruiter) Middleware(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("recruit: Middleware of a nil handler") //nolint:forbidigo // now, and not at each request
	}
	if r == nil || r.idle == nil {
		panic("recruit: Middleware of a Recruiter not created by New") //nolint:forbidigo // now, and not at each request
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req)
		if j := r.draw(); j != nil {
			r.enlistAfter(req.Context(), j)
		}
	})
}

// enlistAfter recruits j when ctx has ended. If ctx never ends, as in a test without
// a server, it recruits j immediately.
func (r *Recruiter) enlistAfter(ctx context.Context, j *job) {
	lasting := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		go r.recruit(lasting, j)
		return
	}
	context.AfterFunc(ctx, func() { r.recruit(lasting, j) })
}
