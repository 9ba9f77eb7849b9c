package dashboard

// Routes returns the parameters of each route of the API that reads.
func (h *Handler) Routes() map[string][]string {
	all := make(map[string][]string)
	for _, rt := range h.routes() {
		all[rt.name] = rt.params
	}
	return all
}
