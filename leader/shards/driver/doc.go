// Package driver is the contract between a node of package shards and its backend, which
// says who owns which shard. Only who writes a backend imports it.
package driver
