//go:build !unix

package main

import "syscall"

// No signal stops a process here: sending one fails.
const (
	signalFreeze   = syscall.Signal(0)
	signalContinue = syscall.Signal(0)
)
