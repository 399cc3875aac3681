package reference

import (
	"path/filepath"
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

// root is the root of the repository, from this package.
const root = "../../../.."

// configurations are the structs that the pages describe, with their directories.
var configurations = [][2]string{
	{"advisory", "Config"},
	{"introspect", "Config"},
	{"leader", "Config"},
	{"leader/shards", "Config"},
	{"once", "Config"},
	{"lease/leasehttp", "ClientConfig"},

	{"leader/postgres", "Config"},
	{"leader/leased", "Config"},
	{"leader/services", "Config"},
	{"leader/activeserver", "Config"},
	{"leader/shards/postgres", "Config"},
	{"once/postgres", "Config"},
	{"lease/postgres", "Config"},
	{"lease/sqlite", "Config"},
	{"lease/etcd", "Config"},
	{"lease/shared", "Config"},
	{"lease/leaseserver", "Config"},
	{"monitor", "Config"},
	{"middleware", "Config"},
}

func ofConfig(tb testing.TB, dir, name string) string {
	tb.Helper()
	var rows [][]string
	for _, f := range configdoc.Fields(tb, filepath.Join(root, dir), name) {
		rows = append(rows, []string{codes(f.Names), code(f.Type), prose(f.Default), prose(f.Limits), prose(f.Meaning)})
	}
	return table([]string{"field", "type", "default", "limits, other values", "meaning"}, rows)
}
