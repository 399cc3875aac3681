// Package seams reads docs/seams.md, the table of what meets what, and holds it to the tests of the tree: each that
// it names exists, is not always skipped, and passed in a run.
package seams
