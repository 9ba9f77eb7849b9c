package main

// The steps of the example, and their expected results.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/etcd"
	"github.com/f8949c05/orchestrator/etcd/embed"
)

func tell(ctx context.Context, out io.Writer) (err error) {
	server, err := embed.Start(ctx, embed.Config{NoFsync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	client, err := clientv3.New(etcd.ClientConfig(server.Endpoint()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	registry, err := etcd.NewRegistry(client)
	if err != nil {
		return err
	}
	put := func(task, content string) error {
		_, _, err := registry.Put(ctx, etcd.Item{Name: task, Content: []byte(content)})
		return err
	}
	s, err := newStage(out, server.Endpoint())
	if err != nil {
		return err
	}
	defer s.close()

	s.title("Two candidates, three workers, six tasks")
	for i := range 6 {
		if err := put(fmt.Sprintf("task%d", i+1), "one"); err != nil {
			return err
		}
	}
	err = s.start("candidate", "c1")
	if err == nil {
		err = s.until(ctx, "c1 leads", func() bool { return s.leader == "c1" })
	}
	for _, p := range [][2]string{{"candidate", "c2"}, {"worker", "w1"}, {"worker", "w2"}, {"worker", "w3"}} {
		if err == nil {
			err = s.start(p[0], p[1])
		}
	}
	if err == nil {
		err = s.spread(ctx, "w1:2 w2:2 w3:2")
	}
	if err != nil {
		return err
	}

	s.title("The leader is killed and a task is changed: no other task restarts")
	starts := s.starts
	s.signal("c1", syscall.SIGKILL)
	if err := put("task1", "two"); err != nil {
		return err
	}
	if err := s.until(ctx, "c2 leads, and task1 has its new content",
		func() bool { return s.leader == "c2" && s.contents["task1"] == "two" }); err != nil {
		return err
	}
	if s.starts != starts+1 {
		return fmt.Errorf("%d tasks started after one change", s.starts-starts)
	}

	s.title("w1 leaves: its tasks move first")
	s.signal("w1", syscall.SIGTERM)
	if err := s.until(ctx, "w1 has gone", func() bool { return s.gone["w1"] }); err != nil {
		return err
	}
	if err := s.spread(ctx, "w2:3 w3:3"); err != nil {
		return err
	}

	s.title("w4 joins: it gets its share, and nothing else moves")
	if err := s.start("worker", "w4"); err != nil {
		return err
	}
	if err := s.spread(ctx, "w2:2 w3:2 w4:2"); err != nil {
		return err
	}

	s.title("w2 is killed: its tasks run elsewhere once its lease has ended")
	s.signal("w2", syscall.SIGKILL)
	if err := s.spread(ctx, "w3:3 w4:3"); err != nil {
		return err
	}

	s.title("w3 and w4 leave: no worker is left to take their tasks, so they do not wait")
	s.signal("w3", syscall.SIGTERM)
	s.signal("w4", syscall.SIGTERM)
	if err := s.until(ctx, "w3 and w4 have gone", func() bool { return s.gone["w3"] && s.gone["w4"] }); err != nil {
		return err
	}
	s.title("No task ever ran twice")
	return nil
}

// spread waits until the workers run the wanted numbers of tasks.
func (s *stage) spread(ctx context.Context, want string) error {
	return s.until(ctx, want, func() bool {
		loads := make(map[string]int)
		for _, worker := range s.running {
			loads[worker]++
		}
		var all []string
		for worker, n := range loads {
			all = append(all, fmt.Sprintf("%s:%d", worker, n))
		}
		slices.Sort(all)
		return strings.Join(all, " ") == want
	})
}
