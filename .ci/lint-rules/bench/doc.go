// Package bench stands for its floor.
package bench
