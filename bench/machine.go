package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
)

// The machine and the versions measured.

// machine describes the computer in one line.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, GOMAXPROCS %d, %s/%s", model, runtime.GOMAXPROCS(0), runtime.GOOS, runtime.GOARCH)
}

// others are the modules that this library is compared with or runs on.
var others = []string{"github.com/twmb/franz-go", "github.com/IBM/sarama", "github.com/dgryski/go-jump", etcdServer, grpcModule}

// grpcModule is the module of gRPC.
const grpcModule = "google.golang.org/grpc"

// etcdServer is the module of the embedded server.
const etcdServer = "go.etcd.io/etcd/server/v3"

// versions returns the versions of Go and of the other modules.
func versions() []string {
	found := []string{runtime.Version()}
	for _, other := range others {
		found = append(found, strings.TrimPrefix(other, "github.com/")+" "+version(other))
	}
	return found
}

// version returns the version of a linked module.
func version(module string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == module {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// revision returns the commit of the working tree.
func revision(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
