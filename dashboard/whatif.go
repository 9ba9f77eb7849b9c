package dashboard

import "github.com/f8949c05/orchestrator/dashboard/api"

// whatIf returns what the next term would do if the query came true.
func (v *view[W, T]) whatIf(q *query) (api.WhatIf, *api.Error) {
	return api.WhatIf{Header: v.header()}, q.err
}
