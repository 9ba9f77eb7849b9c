// Package api is the HTTP API of the allocator: tasks, their workers and the leader.
// openapi.yaml describes it for programs, and a test compares both.
package api
