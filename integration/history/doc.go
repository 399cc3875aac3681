// Package history lets many workers in several processes fight for a few locks,
// while sessions are killed and Lockers are closed. It checks what the workers saw
// against the model of a lock.
package history
