// Package incident finds what is wrong with the locks of a database. It combines pg_locks with the processes' answers
// (Build), finds cycles of waits, and describes problems with evidence and advice (Memory.Look). It remembers the last
// hour. It does no I/O: its functions work on values, and all times are inputs.
package incident
