// Package worker stands for its floor.
package worker
