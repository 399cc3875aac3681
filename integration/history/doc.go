// Package history lets many workers in several processes fight for a few locks
// while sessions are killed and Lockers are closed, and checks what they saw
// against the model of a lock.
package history
