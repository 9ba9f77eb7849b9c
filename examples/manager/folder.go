package main

// The files of a run, and the certificates among them. The certificates are made here
// so that the example needs no set-up. For certificates from elsewhere, all that
// matters is the URI in them.

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/f8949c05/orchestrator/communicator/grpc"
	"github.com/f8949c05/orchestrator/examples/internal/stage"
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

// managerName is the name of the manager's files.
const managerName = "manager"

// certify makes certificates for the manager and for each worker. The authority's key
// is not kept, so it signs no others.
func certify(f folder, workers ...string) error {
	ca, err := stage.NewCA()
	if err != nil {
		return err
	}
	identities := map[string]string{managerName: grpc.ManagerURI}
	for _, w := range workers {
		identities[w] = grpc.WorkerURI(w)
	}
	for name, uri := range identities {
		certificate, key, err := ca.Issue(name, uri)
		if err == nil {
			err = errors.Join(
				os.WriteFile(f.certificate(name), certificate, 0o600),
				os.WriteFile(f.key(name), key, 0o600))
		}
		if err != nil {
			return err
		}
	}
	return os.WriteFile(f.authority(), ca.PEM(), 0o600)
}

// credentials returns the credentials of the manager or of a worker.
func credentials(f folder, name string) (*grpc.Credentials, error) {
	return grpc.LoadCredentials(f.certificate(name), f.key(name), f.authority())
}
