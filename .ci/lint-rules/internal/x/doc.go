// Package x stands for its floor.
package x
