// Package orchestrator breaks every rule of the house once, on lines that say so.
package orchestrator
