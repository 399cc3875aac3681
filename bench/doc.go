// Package bench measures pglatch beside its peers: the same work, in one run. It is a
// separate module, so that no other module depends on the peers.
package bench
