// Package history keeps what the terms of an orchestrator did: a ring in memory.
package history
