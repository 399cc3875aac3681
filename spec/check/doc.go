// Package check replays what real processes did against the machines and rules that decide in production, and against
// tables of its own where there is no such machine. Package internal/test/trace writes the runs. spec/README.md says what is
// replayed against what.
package check
