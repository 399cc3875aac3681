// Package postgres is a leader.Backend on a session lock of PostgreSQL.
package postgres
