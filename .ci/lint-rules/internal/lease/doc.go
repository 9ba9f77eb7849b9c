// Package lease stands for its floor.
package lease
