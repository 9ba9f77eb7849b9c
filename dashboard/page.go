package dashboard

import (
	"net/http"

	"github.com/f8949c05/orchestrator/dashboard/api"
)

// pageRoutes adds the routes of the pages and their files with h.handle. A page takes the
// view of the last term from h.view once, calls the methods of view that the JSON routes
// call, such as view.status, and answers with h.write.
func (h *Handler[W, T]) pageRoutes() {}

// errorPage answers with a page that says what failed.
func (h *Handler[W, T]) errorPage(w http.ResponseWriter, r *http.Request, err *api.Error) {
	h.write(w, r, answer{status: err.Status, contentType: "text/plain; charset=utf-8", body: []byte(err.Error() + "\n")})
}
