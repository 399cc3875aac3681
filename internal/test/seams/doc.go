// Package seams reads docs/reference/seams.md, the table of feature combinations, and compares it with the tests of the tree.
// Each test in the table must exist, must not always be skipped, and must have passed in a run.
package seams
