// Package integration has tests of leader/kubernetes on the real machinery of the
// Kubernetes API, on a real etcd: conformance, elections among processes of ours and
// of client-go's on one Lease, and the example of examples/kubernetes.
//
// The API is, in this order: what PGLATCH_TEST_KUBECONFIG points at, in a namespace
// of its own; a kube-apiserver and an etcd that KUBE_APISERVER_BIN and ETCD_BIN
// name; or the library that serves custom resources in a kube-apiserver, in this
// process, with Lease as a custom resource.
package integration
