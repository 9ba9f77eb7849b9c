package dashboard

import (
	"time"

	"github.com/f8949c05/orchestrator"
)

// HeldText and FellText return the sentences about moves that wait and about a worker that fell.
func (h *Handler) HeldText(moves int, holds []orchestrator.Hold) string {
	return h.words.held(moves, holds)
}

func (h *Handler) FellText(falls string, ends time.Time) string { return h.words.fell(falls, ends) }

// Routes returns the parameters of each route of the API that reads.
func (h *Handler) Routes() map[string][]string {
	all := make(map[string][]string)
	for _, rt := range h.routes() {
		all[rt.name] = rt.params
	}
	return all
}
