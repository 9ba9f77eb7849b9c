// The folder of a run: what is kept where.

package main

import (
	"os"
	"path/filepath"
)

// folder holds everything that outlives a process.
type folder string

// make makes the folder and those in it.
func (f folder) make() error {
	for _, sub := range []string{"certs", "results", "logs", "followed"} {
		if err := os.MkdirAll(filepath.Join(string(f), sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) state() string { return filepath.Join(string(f), "manager.db") }

// The certificate of the manager, or of a worker, and its key.
func (f folder) certificate(name string) string {
	return filepath.Join(string(f), "certs", name+".pem")
}

func (f folder) key(name string) string { return filepath.Join(string(f), "certs", name+"-key.pem") }

// The authority, whose key nobody keeps.
func (f folder) authority() string { return filepath.Join(string(f), "certs", "authority.pem") }

// What a worker ran and what it has completed, for its successor to read.
func (f folder) record(worker string) string { return filepath.Join(string(f), worker+".db") }

func (f folder) results(worker string) string {
	return filepath.Join(string(f), "results", worker+".jsonl")
}

// A growing file, and how far it was followed.
func (f folder) log(name string) string { return filepath.Join(string(f), "logs", name+".log") }

func (f folder) followed(name string) string {
	return filepath.Join(string(f), "followed", name+".jsonl")
}
