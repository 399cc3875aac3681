// Package ground has tests of what locks stand on: poolers, standbys, restarts of
// the server, transports, and migrations that run beside waiters. They need the
// build tag integration.
package ground
