// Package postgres keeps the ownership of shards in PostgreSQL, by session advisory locks.
package postgres
