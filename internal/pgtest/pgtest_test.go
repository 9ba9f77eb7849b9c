package pgtest_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/internal/pgtest"
)

const db = "postgres"

func TestServer(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	s.SQL(db, "create table t (n int); insert into t values (1)")

	for name, end := range map[string]func(){"Crash": s.Crash, "Stop": s.Stop} {
		t.Run(name, func(t *testing.T) {
			end()
			_, err := net.Dial("tcp", s.Addr())
			require.Error(t, err)
			s.Start()
			require.Equal(t, "1", s.SQL(db, "select n from t"))
		})
	}
	t.Run("Pause", func(t *testing.T) {
		s.Pause()
		c, err := net.Dial("tcp", s.Addr())
		require.NoError(t, err)
		defer c.Close()
		_, err = c.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}) // asks for TLS
		require.NoError(t, err)
		answer := make([]byte, 1)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
		_, err = c.Read(answer)
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		s.Continue()
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		_, err = c.Read(answer)
		require.NoError(t, err)
		require.Equal(t, "N", string(answer))
	})
	t.Run("Restore", func(t *testing.T) {
		dump := s.Dump(db)
		s.SQL(db, "insert into t values (2)")
		require.NoError(t, s.Restore(db, dump))
		require.Equal(t, "1", s.SQL(db, "select n from t"))
		require.ErrorContains(t, s.Restore(db, "drop table t; nonsense"), "syntax error")
		require.Equal(t, "1", s.SQL(db, "select n from t"))
	})
	t.Run("Fill", func(t *testing.T) {
		s.Fill()
		require.Error(t, s.Restore(db, "insert into t select generate_series(1, 10000)"))
		s.Free()
		require.Equal(t, "1", s.SQL(db, "select n from t"))
	})
	t.Run("Bouncer", func(t *testing.T) {
		s.SQL(db, "create role anna login; grant select on t to anna")
		b := s.Bouncer(t)
		require.Equal(t, "anna|1", s.SQLAt(b.URL("anna", db), "select current_user, n from t"))
		s.Crash()
		s.Start()
		require.Equal(t, "anna|1", s.SQLAt(b.URL("anna", db), "select current_user, n from t"))
		b.Stop()
		_, err := net.Dial("tcp", b.Addr())
		require.Error(t, err)
		b.Supervise()
		require.Equal(t, "anna|1", s.SQLAt(b.URL("anna", db), "select current_user, n from t"))
	})
}

func TestServer_Standby(t *testing.T) {
	t.Parallel()
	s := pgtest.Start(t)
	s.SQL(db, "create table t (n int); insert into t values (1)")
	b := s.Standby()
	require.Equal(t, "1", b.SQL(db, "select n from t"))
	b.Cut()
	s.SQL(db, "insert into t values (2)")
	s.Crash()
	b.Promote()
	b.SQL(db, "insert into t values (3)")
	require.Equal(t, "1\n3", b.SQL(db, "select n from t order by n"), "2 was lost")
	require.Equal(t, "00000002", b.SQL(db, "select left(pg_walfile_name(pg_current_wal_lsn()), 8)"), "the timeline")

	s.Follow(b)
	require.Equal(t, "1\n3", s.SQL(db, "select n from t order by n"))
	s.Promote()
}
