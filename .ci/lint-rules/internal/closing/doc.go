// Package closing stands for its floor.
package closing
