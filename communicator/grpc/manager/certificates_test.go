package manager

import (
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/grpctest"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/stretchr/testify/require"
)

const (
	shown  = `level=INFO msg="certificate in use"`
	ending = `level=WARN msg="certificate expires soon, replace its files"`
)

// A member logs until when its certificate is valid, and checks with each heartbeat,
// because a connection may last until the end.
func TestR3_AMemberWarnsBeforeItsCertificateEnds(t *testing.T) {
	inBureau(t, func(o *bureau) {
		ca := testca.New(o.T, "ours", testca.Lasting(1000*24*time.Hour))
		o.option = with(o.T, ca.Worker(o.T, "w", testca.Lasting(10*time.Minute)))
		o.hire()
		o.after(9*time.Minute - 2*time.Second)
		require.Equal(o, 1, o.said(shown))
		require.Equal(o, 1, o.said("valid_until=2000-01-01T00:10:00Z"))
		require.Zero(o, o.said("level=WARN"))
		o.after(4 * time.Second)
		require.Equal(o, 1, o.said(ending))
	})
}

// A manager checks in each term, with or without members.
func TestR3_AManagerWarnsBeforeItsCertificateEnds(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ca := testca.New(t, "ours", testca.Lasting(1000*24*time.Hour))
		var log grpctest.Journal
		m := o.open(NewMemoryStore(), logged(&log), with(t, ca.Manager(t, testca.Lasting(10*time.Minute))),
			WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) {})))
		o.pass(9*time.Minute - 2*time.Second)
		require.Equal(t, 1, log.Count(shown))
		require.Equal(t, 1, log.Count("valid_until=2000-01-01T00:10:00Z"))
		require.Zero(t, log.Count("level=WARN"))
		o.pass(4 * time.Second)
		require.Equal(t, 1, log.Count(ending))
		m.close()
	})
}

// A certificate that expires soon is logged at the start.
func TestR3_WarnsAtTheStart(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ca := testca.New(t, "ours", testca.Lasting(1000*24*time.Hour))
		files := ca.Manager(t, testca.Lasting(1*24*time.Hour))
		<-time.After(22 * time.Hour)
		var log grpctest.Journal
		m := o.open(NewMemoryStore(), logged(&log), with(t, files))
		require.Equal(t, 1, log.Count(ending))
		m.close()
	})
}
