// Package boltrecord stands for its floor.
package boltrecord
