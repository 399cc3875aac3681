// Package driver is the contract between a node of package shards and its backend, which stores who owns
// which shard. Only authors of a backend import it.
package driver
