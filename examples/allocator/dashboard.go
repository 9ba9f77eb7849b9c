package main

import (
	"fmt"
	"net"
	"net/http"
	"os"

	"github.com/f8949c05/orchestrator/dashboard"
	"github.com/f8949c05/orchestrator/replica"
	"github.com/f8949c05/orchestrator/replica/admin"
)

// dashboardAt returns the address of the dashboard of a process that listens at a. With that of the leader
// as its attribute, the other dashboards refer to it. If it listens on all interfaces, it is the host's.
func dashboardAt(a net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(a.String())
	if ip := net.ParseIP(host); err == nil && ip.IsUnspecified() {
		host, err = os.Hostname()
	}
	return "http://" + net.JoinHostPort(host, port) + "/dashboard/", err
}

// newAdmin returns the metrics and the dashboard of a replica. The API decides who may see them.
func (n *node) newAdmin(r *replica.Replica) (http.Handler, error) {
	all := func(*http.Request) dashboard.Access { return dashboard.ReadAccess }
	h, err := admin.New(r, dashboard.WithTitle("allocator"), dashboard.WithLogger(n.log), dashboard.WithAuthorize(all))
	if err != nil {
		return nil, fmt.Errorf("make dashboard: %w", err)
	}
	return h, nil
}
