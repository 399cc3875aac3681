// Package interop shows that pglatch and other tools exclude each other on the keys of package
// namespace/interop: each row of docs/reference/keys-of-other-tools.md, with the tool itself where it is a Go module, an npm
// package or one of Debian's, else with the SQL that it sends.
package interop
