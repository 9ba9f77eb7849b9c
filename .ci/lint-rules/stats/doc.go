// Package stats stands for its floor.
package stats
