package main

import (
	"fmt"
	"path"
	"slices"
)

// Each module of the repository, by its directory, is in one of these two lists of path.Match
// patterns. Only this file says which modules are published. If a module is in neither list, or
// in both, the tests and every release fail.
var (
	publishedDirs = []string{
		".",
		"adapters/*",
		"cmd/*",
		"leader/kubernetes",
		"lease/etcd",
		"middleware/*",
		"observe/*",
	}
	// Only for tests and development. They keep their replace directives.
	otherDirs = []string{
		"examples/*",
		"integration/*",
		"tools",
	}
)

func matches(patterns []string, dir string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, dir)
		return ok && err == nil
	})
}

// sortModules divides modules, by their directories, into the two lists.
func sortModules(dirs []string) (published, others []string, err error) {
	for _, dir := range dirs {
		switch in, out := matches(publishedDirs, dir), matches(otherDirs, dir); {
		case in && out:
			return nil, nil, fmt.Errorf("the module in %s is in both lists of tools/cmd/release/modules.go", dir)
		case in:
			published = append(published, dir)
		case out:
			others = append(others, dir)
		default:
			return nil, nil, fmt.Errorf("nothing says whether the module in %s is published: name it in tools/cmd/release/modules.go", dir)
		}
	}
	return published, others, nil
}
