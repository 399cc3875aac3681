// Package environment has tests of locks in changing surroundings: poolers, standbys, restarts of
// the server, transports, and migrations that run beside waiters. They need the
// build tag integration.
package environment
