// Package embed stands for its floor.
package embed
