package admin_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/admin"
	"github.com/f8949c05/orchestrator/replica/memory"
)

// A service serves the handler beside its tasks.
func Example() {
	r, err := replica.New(memory.New(), replica.Names("a", "b"), func(ctx context.Context, _ string) error {
		<-ctx.Done()
		return nil
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := admin.New(r)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"/livez", "/readyz"} { // http.ListenAndServe(":8080", h) in a service
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, http.NoBody))
		fmt.Println(path, w.Code)
	}
	// Output:
	// /livez 200
	// /readyz 503
}
