// Dryrun shows what an orchestrator would do, and why, without doing it. It prints
// two plans for a cluster described in a file: one for the cluster as it is, and one
// for the loss of a worker.
//
//	go run ./examples/dryrun
//	go run ./examples/dryrun -without w2 cluster.json
//
// A term under WithDryRun writes nothing, so its Communicator needs only one
// function, for List. Plan then returns what the next term would do under a
// hypothesis, without a call.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator"
)

//go:embed cluster.json
var sample []byte

// cluster is the content of the file.
type cluster struct {
	Tasks []struct {
		Name      string `json:"name"`
		Instances int    `json:"instances"`
	} `json:"tasks"`
	Workers []workerEntry `json:"workers"`
}

type workerEntry struct {
	Name  string   `json:"name"`
	Tasks []string `json:"tasks"`
}

func main() {
	flag.Usage = func() {
		_, _ = fmt.Fprintln(flag.CommandLine.Output(), "usage: dryrun [-without WORKER] [FILE]\n\nFILE describes the cluster; without it, a sample is used.")
		flag.PrintDefaults()
	}
	without := flag.String("without", "", "the `worker` to lose, in place of the first")
	flag.Parse()
	if flag.NArg() > 1 {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), os.Stdout, flag.Arg(0), *without); err != nil {
		fmt.Fprintln(os.Stderr, "dryrun:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, file, without string) error {
	c, err := read(file)
	if err != nil {
		return err
	}
	if without == "" {
		without = c.Workers[0].Name
	}
	o, err := look(ctx, c)
	if err != nil {
		return err
	}
	less, err := o.Plan(orchestrator.Hypothesis[string, string]{Lose: []string{without}})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "As it is:\n\n%v\nWithout %s:\n\n%v", o.LastPlan(), without, less)
	return err
}

func read(file string) (cluster, error) {
	text := sample
	if file != "" {
		var err error
		if text, err = os.ReadFile(file); err != nil {
			return cluster{}, err
		}
	}
	var c cluster
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("%s: %w", file, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return c, fmt.Errorf("%s: unexpected data after the cluster", file)
	}
	if len(c.Workers) == 0 {
		return c, fmt.Errorf("%s: no workers", file)
	}
	return c, nil
}

// look returns an orchestrator that has run one dry-run term on c.
func look(ctx context.Context, c cluster) (*orchestrator.Orchestrator[string, string], error) {
	runs := make(map[string][]string)
	var workers []orchestrator.Worker[string]
	for _, w := range c.Workers {
		runs[w.Name] = w.Tasks
		workers = append(workers, orchestrator.Worker[string]{Name: w.Name})
	}
	var tasks []orchestrator.Task[string]
	for _, t := range c.Tasks {
		tasks = append(tasks, orchestrator.Task[string]{Name: t.Name, Instances: t.Instances})
	}
	o, err := orchestrator.New(communicator.Func[string, string]{
		ListFunc: func(_ context.Context, worker string) ([]string, error) { return runs[worker], nil },
	}, orchestrator.WithDryRun(), orchestrator.WithSeed(0))
	if err != nil {
		return nil, err
	}
	if err := o.UpdateTasks(tasks); err != nil {
		return nil, err
	}
	if err := o.UpdateWorkers(workers); err != nil {
		return nil, err
	}
	return o, o.NextTerm(ctx)
}
