// Package kubernetes tests leader/kubernetes on the real machinery of the Kubernetes API, on a real etcd:
// conformance, elections among processes of ours and of client-go's on one Lease, and the example of
// examples/thirdparty/kubernetes.
//
// The API is the first of these that is available:
//
//   - The cluster of PGLATCH_TEST_KUBECONFIG, in a namespace of its own.
//   - A kube-apiserver and an etcd, named by KUBE_APISERVER_BIN and ETCD_BIN.
//   - The library that serves custom resources in a kube-apiserver, in this process, with Lease as a custom
//     resource.
package kubernetes
