package state

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator"
)

// someRecords returns records of every kind.
func someRecords() Records {
	r := newRecords()
	r.Epoch, r.Revision = 7, 9
	r.tasks["a/b\n\xff"] = NewTask(Item{
		"a/b\n\xff", []byte("line\nline\x00"),
		orchestrator.TaskSettings{Instances: 2, Handoff: orchestrator.StartThenStop},
		9,
	})
	r.tasks["t"] = NewTask(Item{"t", []byte{}, orchestrator.TaskSettings{Instances: 1}, 3})
	r.done["d"] = &finished{Completion{"d", 5, "w\xff", time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)}, sha256.Sum256(nil)}
	r.Members["w"] = &Membership{WorkerID{"w", 1<<64 - 1}, "host:80", 1500 * time.Millisecond, true, orchestrator.WorkerSettings{}}
	r.Members["z"] = &Membership{
		WorkerID{"z", 5},
		"host:81", time.Second, false,
		orchestrator.WorkerSettings{Zone: "a", Labels: []string{"gpu", "ssd"}, Share: 2, MaxTasks: 9},
	}
	r.drains["x"] = true
	return r
}

// The format is a contract with later versions of the manager.
func TestR2_HowItIsLaidOut(t *testing.T) {
	r := someRecords()
	values := r.Encode()
	require.Equal(t, map[string][]byte{
		"epoch":          []byte("7"),
		"revision":       []byte("9"),
		"task/a/b\n\xff": []byte(`{"revision":9,"instances":2,"handoff":2}` + "\nline\nline\x00"),
		"task/t":         []byte(`{"revision":3,"instances":1}` + "\n"),
		"done/d":         []byte(`{"revision":5,"worker":"d/8=","at":"2026-01-02T03:04:05.000000006Z","content":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}`),
		"member/w":       []byte(`{"incarnation":18446744073709551615,"address":"host:80","lease":1500000000,"draining":true}`),
		"member/z":       []byte(`{"incarnation":5,"address":"host:81","lease":1000000000,"zone":"a","labels":["gpu","ssd"],"share":2,"max_tasks":9}`),
		"drain/x":        []byte("{}"),
	}, values)

	read, err := DecodeAll(values)
	require.NoError(t, err)
	require.Equal(t, r, read)

	gone := newRecords()
	gone.tasks["t"], gone.done["d"], gone.Members["w"], gone.Members["z"], gone.drains["x"] = nil, nil, nil, nil, false
	require.Equal(t, map[string][]byte{"task/t": nil, "done/d": nil, "member/w": nil, "member/z": nil, "drain/x": nil}, gone.Encode())
	r.Apply(&gone)
	left := newRecords()
	left.Epoch, left.Revision, left.tasks["a/b\n\xff"] = r.Epoch, r.Revision, r.tasks["a/b\n\xff"]
	require.Equal(t, left, r)
}

func TestR2_WhatCannotBeReadIsAnError(t *testing.T) {
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
		{"task/x", `{"revision":1,"instances":-2}` + "\n"},
		{"task/x", `{"revision":1,"instances":1,"handoff":3}` + "\n"},
		{"done/x", "{"},
		{"done/x", `{"revision":1,"content":"abc"}`},
		{"done/x", `{"revision":1,"content":"ab"}`},
		{"member/x", "["},
		{"member/x", `{"incarnation":0,"lease":1}`},
		{"member/x", `{"incarnation":1,"lease":0}`},
		{"member/x", `{"incarnation":1,"lease":1,"labels":["!gpu"]}`},
		{"task/x", `{"revision":1,"instances":1,"weight":-1}` + "\n"},
	} {
		_, err := DecodeAll(map[string][]byte{entry[0]: []byte(entry[1])})
		require.Error(t, err, "%q", entry)
		require.ErrorContains(t, err, "key ")
	}
}

func FuzzRecord(f *testing.F) {
	r := someRecords()
	for key, value := range r.Encode() {
		f.Add(key, value)
	}
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		r := newRecords()
		if r.decode(key, value) != nil {
			return
		}
		again := newRecords()
		for key, value := range r.Encode() {
			require.NoError(t, again.decode(key, value))
		}
		require.Equal(t, r, again)
	})
}
