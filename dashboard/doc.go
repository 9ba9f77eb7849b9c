// Package dashboard shows an operator what the orchestrator of a fleet does and why: as
// pages for a browser and as a JSON API. It is a plain [http.Handler].
package dashboard
