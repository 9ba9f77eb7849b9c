package etcd

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Drain drains the worker of that name: its tasks move away and it gets no others,
// until Undrain. A drain outlives changes of the leader and of the membership. The
// worker need not be a member.
func (r *Registry) Drain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpPut(r.layout.Drain(worker), "draining")}); err != nil {
		return fmt.Errorf("drain %s: %w", worker, err)
	}
	return nil
}

// Undrain ends a drain. A worker that is not drained is not an error.
func (r *Registry) Undrain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpDelete(r.layout.Drain(worker))}); err != nil {
		return fmt.Errorf("undrain %s: %w", worker, err)
	}
	return nil
}

// Draining returns the names of the workers that were drained with Drain, in the
// order of their keys.
func (r *Registry) Draining(ctx context.Context) ([]string, error) {
	resp, err := r.commit(ctx, nil,
		[]clientv3.Op{clientv3.OpGet(r.layout.DrainsPrefix(), clientv3.WithPrefix(), clientv3.WithKeysOnly())})
	if err != nil {
		return nil, fmt.Errorf("list drains: %w", err)
	}
	var names []string
	for _, kv := range found(resp.Responses[0]) {
		if _, worker, _, ok := r.layout.Parse(string(kv.Key)); ok {
			names = append(names, worker)
		}
	}
	return names, nil
}
