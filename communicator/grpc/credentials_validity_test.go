package grpc

import (
	"crypto/x509"
	"log/slog"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/internal/testca"
	"github.com/stretchr/testify/require"
)

const (
	shown   = `level=INFO msg="certificate in use"`
	ending  = `level=WARN msg="certificate expires soon, replace its files"`
	renewal = `level=INFO msg="certificates replaced"`
)

// days makes a certificate that is valid for n more days.
func days(n int) testca.Option { return lasting(time.Duration(n) * 24 * time.Hour) }

func lasting(d time.Duration) testca.Option {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now(), time.Now().Add(d) }
}

func loaded(t *testing.T, files testca.Files) *Credentials {
	t.Helper()
	c, err := LoadCredentials(files.Cert, files.Key, files.CA)
	require.NoError(t, err)
	return c
}

// A certificate expires at the latest with its issuer. ValidUntil reads the current
// files.
func TestR3_ValidUntil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		long, short := testca.New(t, "long", days(100)), testca.New(t, "short", days(20))
		files := long.Worker(t, "w", days(30))
		c := loaded(t, files)
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 30)), c.ValidUntil())
		short.Renew(t, files, []string{WorkerURI("w")}, days(30))
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 20)), c.ValidUntil())

		require.NoError(t, os.Remove(files.Key))
		require.True(t, c.ValidUntil().Equal(now.AddDate(0, 0, 30)), "the files in use: %v", c.ValidUntil())
		other := long.Worker(t, "w", days(30))
		require.NoError(t, os.WriteFile(other.CA, short.PEM(), 0o600))
		untrusted, err := readCredentials(other.Cert, other.Key, other.CA, nil)
		require.NoError(t, err)
		require.True(t, untrusted.ValidUntil().Equal(now.AddDate(0, 0, 30)), "its own validity")
	})
}

// The warning comes when a tenth is left, once a day, until the files are replaced.
// If warnings are not logged, none counts as given.
func TestR3_WarnsBeforeACertificateEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t, "ours", days(1000))
		files := ca.Worker(t, "w", days(30))
		c := loaded(t, files)
		var log journal
		logger := slog.New(slog.NewTextHandler(&log, nil))
		watch := func() {
			for range 10 {
				c.watch(logger)
				c.current(logger) // as a handshake does
			}
		}
		pass := func(d time.Duration) { <-time.After(d) }
		const day = 24 * time.Hour

		pass(27*day - time.Hour)
		watch()
		require.Zero(t, log.count("level="))
		pass(time.Hour)
		c.watch(slog.New(slog.DiscardHandler))
		watch()
		require.Equal(t, 1, log.count(ending))
		require.Equal(t, 1, log.count("valid_until=2000-01-31T00:00:00Z left=72h0m0s"), log.text.String())
		require.Equal(t, 1, log.count(files.Cert))
		pass(day - time.Hour)
		watch()
		require.Equal(t, 1, log.count(ending), "once a day")
		pass(time.Hour)
		watch()
		require.Equal(t, 2, log.count(ending))

		// Files that do not match replace nothing.
		key, err := os.ReadFile(files.Key)
		require.NoError(t, err)
		require.NoError(t, os.Remove(files.Key))
		pass(day)
		watch()
		require.Equal(t, 3, log.count(ending))
		require.NoError(t, os.WriteFile(files.Key, key, 0o600))
		pass(2 * day) // it has expired
		watch()
		require.Equal(t, 4, log.count(ending))

		ca.Renew(t, files, []string{WorkerURI("w")}, days(10))
		pass(day)
		watch()
		require.Equal(t, 1, log.count(renewal))
		require.Equal(t, 4, log.count(ending))
		pass(8 * day)
		watch()
		require.Equal(t, 5, log.count(ending), "the next one expires too")
	})
}

// There is no warning of a certificate that was replaced in time, even if no
// handshake has read the new one yet.
func TestR3_DoesNotWarnOfACertificateThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := testca.New(t, "ours", days(1000))
		files := ca.Worker(t, "w", days(30))
		c := loaded(t, files)
		var log journal
		logger := slog.New(slog.NewTextHandler(&log, nil))
		<-time.After(28 * 24 * time.Hour)
		ca.Renew(t, files, []string{WorkerURI("w")}, days(30))
		c.watch(logger)
		require.Equal(t, 1, log.count(renewal))
		require.Zero(t, log.count(ending))
	})
}

// A member logs until when its certificate is valid, and checks with each heartbeat,
// because a connection may last until the end.
func TestR3_AMemberWarnsBeforeItsCertificateEnds(t *testing.T) {
	inBureau(t, func(o *bureau) {
		ca := testca.New(o.T, "ours", days(1000))
		o.option = WithCredentials(loaded(o.T, ca.Worker(o.T, "w", lasting(10*time.Minute))))
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
		ca := testca.New(t, "ours", days(1000))
		var log journal
		m := o.open(NewMemoryStore(), log.option(), WithCredentials(loaded(t, ca.Manager(t, lasting(10*time.Minute)))),
			WithOrchestrator(orchestrator.WithStats(func(orchestrator.TermStats) {})))
		o.pass(9*time.Minute - 2*time.Second)
		require.Equal(t, 1, log.count(shown))
		require.Equal(t, 1, log.count("valid_until=2000-01-01T00:10:00Z"))
		require.Zero(t, log.count("level=WARN"))
		o.pass(4 * time.Second)
		require.Equal(t, 1, log.count(ending))
		m.close()
	})
}

// A certificate that expires soon is logged at the start.
func TestR3_WarnsAtTheStart(t *testing.T) {
	inOffice(t, func(t *testing.T, o *office) {
		ca := testca.New(t, "ours", days(1000))
		files := ca.Manager(t, days(1))
		<-time.After(22 * time.Hour)
		var log journal
		m := o.open(NewMemoryStore(), log.option(), with(t, files))
		require.Equal(t, 1, log.count(ending))
		m.close()
	})
}
