//go:build peers

package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	workerMain() // does not return in a worker process
	goleak.VerifyTestMain(m)
}
