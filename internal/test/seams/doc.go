// Package seams reads docs/reference/seams.md, the table of feature combinations, and docs/reference/faults.md, the table of faults. It compares
// them with the tests of the tree. Each test in a table must exist, must not always be skipped, and must have passed in a run.
package seams
