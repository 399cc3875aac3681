// Package shards spreads the ownership of shards over nodes.
package shards
