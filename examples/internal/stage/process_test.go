package stage_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
	"github.com/f8949c05/orchestrator/examples/internal/stage/stagetest"
)

func TestMain(m *testing.M) {
	if stagetest.IsProgram() { // it does not end when it should
		stage.Main("program", func(ctx context.Context) error {
			fmt.Println("runs")
			<-ctx.Done()
			fmt.Println("ends")
			<-time.After(time.Minute)
			return nil
		})
	}
	os.Exit(m.Run())
}

// Every example ends with the second signal at the latest.
func TestMain_ASecondSignalEndsTheProcess(t *testing.T) {
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		p := stagetest.Start(t, ".")
		p.Until(t, "runs")
		if err := p.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		p.Until(t, "ends")
		for range 100 { // the first signal may still be handled
			_ = p.Process.Signal(signal) // it may have ended
			<-time.After(5 * time.Millisecond)
		}
		p.Wait(t, -1)
	}
}
