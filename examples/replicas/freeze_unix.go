//go:build unix

package main

import "syscall"

// The signals that stop a process and let it continue.
const (
	signalFreeze   = syscall.SIGSTOP
	signalContinue = syscall.SIGCONT
)
