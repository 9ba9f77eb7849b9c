// The files of a run.

package main

import (
	"os"
	"path/filepath"
)

// folder is the path of the folder for all files that outlive a process.
type folder string

// make creates the folder and its subfolders.
func (f folder) make() error {
	for _, sub := range []string{"certs", "results", "logs", "followed"} {
		if err := os.MkdirAll(filepath.Join(string(f), sub), 0o700); err != nil {
			return err
		}
	}
	return nil
}

func (f folder) state() string { return filepath.Join(string(f), "manager.db") }

// certificate and key return the files of the manager or of a worker.
func (f folder) certificate(name string) string {
	return filepath.Join(string(f), "certs", name+".pem")
}

func (f folder) key(name string) string { return filepath.Join(string(f), "certs", name+"-key.pem") }

// authority returns the file of the authority's certificate. Its key is not kept.
func (f folder) authority() string { return filepath.Join(string(f), "certs", "authority.pem") }

// record returns the file in which a worker records its tasks for its successor.
func (f folder) record(worker string) string { return filepath.Join(string(f), worker+".db") }

func (f folder) results(worker string) string {
	return filepath.Join(string(f), "results", worker+".jsonl")
}

// log and followed return a growing file, and the record of its followed lines.
func (f folder) log(name string) string { return filepath.Join(string(f), "logs", name+".log") }

func (f folder) followed(name string) string {
	return filepath.Join(string(f), "followed", name+".jsonl")
}
