// Package boltstore stands for its floor.
package boltstore
