// Package scenario stands for its floor.
package scenario
