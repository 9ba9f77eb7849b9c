// Package kubetest starts real Kubernetes API servers for tests, each with an etcd of its own. A test
// pauses, kills and restarts them, and makes namespaces with service accounts that a Role permits
// something. There is no other part of Kubernetes: nothing runs pods.
//
// The programs are built by tools/kube-apiserver/build, once for each version, and kept in the user's
// cache folder. The tests take minutes, so they are skipped, with one line, unless the environment has
// ORCHESTRATOR_KUBERNETES=required.
package kubetest
