package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/mod/semver"
)

// stablePackages are the directories of the packages whose exported API changes incompatibly only in a minor version
// whose section of CHANGELOG.md says so. docs/stability.md lists them too, and a test compares the lists.
var stablePackages = []string{
	"advisory",
	"leader",
	"leader/backoff",
	"leader/file",
	"leader/kubernetes",
	"leader/leased",
	"leader/postgres",
	"lease",
	"lease/leasehttp",
	"lease/postgres",
	"lease/sqlite",
	"namespace",
	"once",
	"once/postgres",
}

// checkStable fails if a version may not change stable packages in the way it does. section is that of the version in
// CHANGELOG.md.
func checkStable(before, version, section string, broken []breach) error {
	switch {
	case len(broken) == 0:
		return nil
	case semver.MajorMinor(before) == semver.MajorMinor(version):
		return fmt.Errorf("%s has the same minor version as %s, and changes stable packages incompatibly: release another minor version, or undo the changes\n%s", version, before, lines(broken))
	case slices.ContainsFunc(broken, func(b breach) bool { return b.sudden }):
		return fmt.Errorf("%s removes names of stable packages that %s does not mark with \"Deprecated:\": keep them, deprecated, for this version\n%s", version, before, lines(broken))
	case !strings.Contains(section, "\n### Changed\n") && !strings.Contains(section, "\n### Removed\n"):
		return fmt.Errorf("%s changes stable packages incompatibly, and its section of CHANGELOG.md has neither \"### Changed\" nor \"### Removed\"\n%s", version, lines(broken))
	}
	return nil
}
