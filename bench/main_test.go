package main

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	guestMain() // does not return in a worker process
	goleak.VerifyTestMain(m)
}
