//go:build peers

package main

// The systems whose reaction time is measured.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/f8949c05/orchestrator"
	"github.com/f8949c05/orchestrator/communicator/grpc/manager"
	"github.com/f8949c05/orchestrator/communicator/memory"
)

var errMeasured = errors.New("the measurement has ended")

func taskName(t int) string { return fmt.Sprintf("task-%08d", t) }

// memorySystem is a cluster on communicator/memory, and its leader.
type memorySystem struct {
	cluster  *memory.Cluster[string, string]
	interval time.Duration
	taskLog  taskLog
	terms    termLog
	tasks    []orchestrator.Task[string] // the initial tasks of every leader
	workers  []orchestrator.Worker[string]

	ctx    context.Context
	cancel context.CancelCauseFunc
	leader *orchestrator.Orchestrator[string, string]
	end    context.CancelCauseFunc // ends the leader
	ended  sync.WaitGroup
}

func startMemorySystem(ctx context.Context, t transport, interval time.Duration) (system, error) {
	m := &memorySystem{interval: interval}
	m.taskLog.init()
	m.terms.init()
	m.ctx, m.cancel = context.WithCancelCause(ctx)
	var err error
	m.cluster, err = memory.New(func(ctx context.Context, worker, task string) error {
		if err := m.taskLog.start(task, worker); err != nil {
			m.cancel(err)
		}
		defer m.taskLog.stop(task, worker)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if err != nil {
		return nil, err
	}
	for i := range t.instances {
		m.tasks = append(m.tasks, orchestrator.Task[string]{Name: taskName(i)})
	}
	for i := range t.workers - 1 {
		m.workers = append(m.workers, orchestrator.Worker[string]{Name: workerName(i)})
		m.cluster.Start(workerName(i))
	}
	return m, m.startLeader()
}

func (m *memorySystem) observed() (context.Context, *taskLog, *termLog) {
	return m.ctx, &m.taskLog, &m.terms
}

func (m *memorySystem) add(task string) error { return m.leader.AddTask(task) }

func (m *memorySystem) remove(tasks []string) error {
	for _, task := range tasks {
		m.leader.RemoveTask(task)
	}
	return nil
}

func (m *memorySystem) join(worker string) (time.Time, error) {
	start := time.Now()
	m.cluster.Start(worker)
	return start, m.leader.AddWorker(worker)
}

// kill also removes the worker, because in memory nothing else ends its membership.
func (m *memorySystem) kill(worker string) (time.Time, error) {
	m.cluster.Kill(worker)
	m.taskLog.killed(worker)
	m.leader.RemoveWorker(worker)
	return time.Now(), nil
}

func (m *memorySystem) stopLeader() {
	m.end(errMeasured)
	m.ended.Wait()
}

func (m *memorySystem) startLeader() error {
	var err error
	if m.leader, err = orchestrator.New(m.cluster, orchestrator.WithStats(m.terms.note)); err != nil {
		return err
	}
	if err := errors.Join(m.leader.UpdateTasks(m.tasks), m.leader.UpdateWorkers(m.workers)); err != nil {
		return err
	}
	ctx, end := context.WithCancelCause(m.ctx)
	m.end = end
	m.ended.Go(func() {
		if err := m.leader.Run(ctx, m.interval); ctx.Err() == nil {
			m.cancel(fmt.Errorf("the leader: %w", err))
		}
	})
	return nil
}

func (m *memorySystem) close() error {
	m.cancel(errMeasured)
	m.ended.Wait()
	return m.cluster.Close(context.WithoutCancel(m.ctx))
}

// grpcSystem is a manager and its members, except the worker process.
type grpcSystem struct {
	*grpcFleet
	process workerProcess
}

func startGRPCSystem(ctx context.Context, t transport, interval time.Duration) (system, error) {
	if err := enoughDescriptors(t.workers); err != nil {
		return nil, err
	}
	f, err := startGRPCFleet(ctx, interval, t.lease)
	if err != nil {
		return nil, err
	}
	s := &grpcSystem{f, workerProcess{lease: t.shortLease, taskLog: &f.taskLog, fail: f.cancel}}
	for range t.workers - 1 {
		if err := f.startMember(slots, false); err != nil {
			return nil, errors.Join(err, s.close())
		}
	}
	// Add the tasks when all members have joined; otherwise tasks would move.
	_, err = f.terms.wait(f.ctx, 0, func(s orchestrator.TermStats) bool { return s.Workers.Answering == t.workers-1 })
	if err == nil {
		err = f.expect(0, t.instances)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *grpcSystem) observed() (context.Context, *taskLog, *termLog) {
	return s.ctx, &s.taskLog, &s.terms
}

func (s *grpcSystem) add(task string) error {
	_, err := s.manager.Put(s.ctx, manager.Item{Name: task, Content: make([]byte, contentBytes)})
	return err
}

func (s *grpcSystem) remove(tasks []string) error { return s.manager.Delete(s.ctx, tasks...) }

func (s *grpcSystem) join(worker string) (time.Time, error) {
	return s.process.join(s.ctx, workerSpec{Name: worker, Manager: s.address})
}

// kill returns the end of the lease as the manager knows it.
func (s *grpcSystem) kill(worker string) (time.Time, error) {
	if err := s.process.kill(); err != nil {
		return time.Time{}, err
	}
	for _, m := range s.manager.Members() {
		if m.Name == worker {
			return m.Until, nil
		}
	}
	return time.Time{}, errors.New("the lease had ended already")
}

func (s *grpcSystem) stopLeader() {
	s.stopManager(errMeasured)
	s.managing.Wait()
}

func (s *grpcSystem) startLeader() error { return s.manage() }

func (s *grpcSystem) close() error { return errors.Join(s.process.close(), s.grpcFleet.close()) }
