// Package api is the HTTP API of the allocator: tasks, who runs them, who leads.
// openapi.yaml says the same for programs; a test holds the two together.
package api
