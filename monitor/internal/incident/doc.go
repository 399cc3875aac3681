// Package incident says what is wrong with the locks of a database. It puts together what
// pg_locks has and what the processes answer (Build), finds who waits for whom in a circle,
// names what is wrong with evidence and advice (Memory.Look), and remembers the last hour. It asks nobody: its functions
// work on values, and all times come in with them.
package incident
