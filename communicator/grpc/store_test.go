package grpc

import (
	"crypto/sha256"
	"errors"
	"testing"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/stretchr/testify/require"
)

// someRecords returns records of every kind.
func someRecords() records {
	r := newRecords()
	r.epoch, r.revision = 7, 9
	r.tasks["a/b\n\xff"] = newTask(Item{
		"a/b\n\xff", []byte("line\nline\x00"),
		Settings{Instances: 2, Handoff: orchestrator.StartThenStop},
		9,
	})
	r.tasks["t"] = newTask(Item{"t", []byte{}, Settings{Instances: 1}, 3})
	r.done["d"] = &finished{Completion{"d", 5, "w\xff", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}, sha256.Sum256(nil)}
	r.members["w"] = &membership{Worker{"w", 1<<64 - 1}, "host:80", 1500 * time.Millisecond, true}
	r.drains["x"] = true
	return r
}

// The format is a contract with later versions of the manager.
func TestR2_HowItIsLaidOut(t *testing.T) {
	r := someRecords()
	values := r.encode()
	require.Equal(t, map[string][]byte{
		"epoch":          []byte("7"),
		"revision":       []byte("9"),
		"task/a/b\n\xff": []byte(`{"revision":9,"instances":2,"handoff":2}` + "\nline\nline\x00"),
		"task/t":         []byte(`{"revision":3,"instances":1}` + "\n"),
		"done/d":         []byte(`{"revision":5,"worker":"d/8=","at":"2026-01-02T03:04:05.000000006Z","content":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`),
		"member/w":       []byte(`{"incarnation":18446744073709551615,"address":"host:80","lease":1500000000,"draining":true}`),
		"drain/x":        []byte("{}"),
	}, values)

	s := NewMemoryStore()
	require.NoError(t, s.Save(values))
	read, err := load(s)
	require.NoError(t, err)
	require.Equal(t, r, read)

	gone := newRecords()
	gone.tasks["t"], gone.done["d"], gone.members["w"], gone.drains["x"] = nil, nil, nil, false
	require.Equal(t, map[string][]byte{"task/t": nil, "done/d": nil, "member/w": nil, "drain/x": nil}, gone.encode())
	require.NoError(t, s.Save(gone.encode()))
	read, err = load(s)
	require.NoError(t, err)
	r.apply(&gone)
	require.Equal(t, r, read)
}

// broken is a store that cannot be read.
type broken struct{ err error }

func (b broken) Load() (map[string][]byte, error) { return nil, b.err }
func (b broken) Save(map[string][]byte) error     { return b.err }

func TestR2_WhatCannotBeReadIsAnError(t *testing.T) {
	failure := errors.New("no disk")
	_, err := load(broken{failure})
	require.ErrorIs(t, err, failure)
	for _, entry := range [][2]string{
		{"else", "1"},
		{"epoch/", "1"},
		{"epoch/x", "1"},
		{"epoch", "one"},
		{"epoch", "-1"},
		{"revision", ""},
		{"else/x", "{}"},
		{"task", "{}\n"},
		{"task/", "{}\n"},
		{"task/x", `{"revision":1,"instances":1}`},
		{"task/x", "{\n"},
		{"task/x", `{"revision":1,"instances":-1}` + "\n"},
		{"task/x", `{"revision":1,"instances":1,"handoff":3}` + "\n"},
		{"done/x", "{"},
		{"done/x", `{"revision":1,"content":"abc"}`},
		{"done/x", `{"revision":1,"content":"ab"}`},
		{"member/x", "["},
		{"member/x", `{"incarnation":0,"lease":1}`},
		{"member/x", `{"incarnation":1,"lease":0}`},
	} {
		s := NewMemoryStore()
		require.NoError(t, s.Save(map[string][]byte{entry[0]: []byte(entry[1])}))
		_, err := load(s)
		require.Error(t, err, "%q", entry)
		require.ErrorContains(t, err, "key ")
	}
}

// Workers may have outlived a lost store.
func TestR2_AnEmptyStoreBeginsAboveThoseBefore(t *testing.T) {
	s := NewMemoryStore()
	l, err := openLedger(s, rules{})
	require.NoError(t, err)
	now := time.Now()
	require.WithinDuration(t, now, time.UnixMilli(int64(l.epoch)), time.Minute)
	first, err := load(s)
	require.NoError(t, err)
	require.Equal(t, l.epoch, first.epoch)
	require.WithinDuration(t, now, time.UnixMicro(first.revision), time.Minute)

	next, err := openLedger(s, rules{})
	require.NoError(t, err)
	require.Equal(t, l.epoch+1, next.epoch, "rises from there")
	second, err := load(s)
	require.NoError(t, err)
	require.Equal(t, first.revision, second.revision)
}

func FuzzRecord(f *testing.F) {
	r := someRecords()
	for key, value := range r.encode() {
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r := newRecords()
		if r.decode(key, value) != nil {
			return
		}
		again := newRecords()
		for key, value := range r.encode() {
			require.NoError(t, again.decode(key, value))
		}
		require.Equal(t, r, again)
	})
}
