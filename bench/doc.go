// Package bench measures pglatch beside its peers: the same work, in one run. It is
// a module of its own, so that nobody else depends on the peers.
package bench
