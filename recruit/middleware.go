package recruit

// For web servers: whoever has answered a request has a moment to spare.

import (
	"context"
	"net/http"
)

// Middleware returns a handler that calls next, and then enlists, off the path of
// the response: whoever waits for that, or for the next one on the same
// connection, does not wait for a job.
//
// The draw is made when next has returned, and takes nanoseconds. Where it draws
// a job, that begins on a goroutine of its own when the server has ended the
// request's context, which is when the outermost handler has returned too. It
// gets the request's values, not its end. Nobody enlists where next panics. A job
// that was drawn and has not begun by then is dropped by [Recruiter.Close], and
// counted as dismissed.
//
// It panics where next is nil, as net/http does for a nil handler, or where the
// Recruiter is not one that New made.
//
// net/http writes the end of a response after that, and tells nobody when it
// has, so the two may happen at the same time.
func (r *Recruiter) Middleware(next http.Handler) http.Handler {
	if f, ok := next.(http.HandlerFunc); next == nil || ok && f == nil {
		panic("recruit: Middleware of a nil handler") //nolint:forbidigo // at once, and not at each request
	}
	if r == nil || r.idle == nil {
		panic("recruit: Middleware of a Recruiter that New has not made") //nolint:forbidigo // at once, and not at each request
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		next.ServeHTTP(w, req)
		if j := r.draw(); j != nil {
			r.enlistAfter(req.Context(), j)
		}
	})
}

// enlistAfter recruits for j when ctx has ended; at once where it never does, as
// in a test without a server.
func (r *Recruiter) enlistAfter(ctx context.Context, j *job) {
	lasting := context.WithoutCancel(ctx)
	if ctx.Done() == nil {
		go r.recruit(lasting, j)
		return
	}
	context.AfterFunc(ctx, func() { r.recruit(lasting, j) })
}
