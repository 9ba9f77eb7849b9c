// Package simulator stands for its floor.
package simulator
