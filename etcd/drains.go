package etcd

// Drains: which workers are to end empty, by name, whether they are members or
// not.

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Drain has the worker of that name end with no tasks, and get none, until
// Undrain: whoever leads, and whenever it joins. It need not be a member.
func (r *Registry) Drain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpPut(r.layout.Drain(worker), "draining")}); err != nil {
		return fmt.Errorf("drain %s: %w", worker, err)
	}
	return nil
}

// Undrain takes back what Drain said. A worker that nobody drained is no error.
func (r *Registry) Undrain(ctx context.Context, worker string) error {
	if err := checkName("worker", worker); err != nil {
		return err
	}
	if _, err := r.commit(ctx, nil, []clientv3.Op{clientv3.OpDelete(r.layout.Drain(worker))}); err != nil {
		return fmt.Errorf("undrain %s: %w", worker, err)
	}
	return nil
}

// Draining returns the names of the workers that are to end empty by Drain, in
// the order of their keys.
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
