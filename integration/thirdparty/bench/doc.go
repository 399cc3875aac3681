// Package bench measures pglatch beside its peers: the same work, in one run.
package bench
