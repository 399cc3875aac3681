// Package compat runs programs of two versions of this repository beside each other: one built from the tree, and one
// built from the commit that the file base names. They must exclude each other on every kind of lock, and understand
// each other's tables, leases and answers. docs/how-to/upgrade.md says what these tests prove.
//
// Run them through make compat. They need the history of the repository.
package compat
