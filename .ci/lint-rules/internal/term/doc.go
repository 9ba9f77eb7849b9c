// Package term stands for what is pure.
package term
