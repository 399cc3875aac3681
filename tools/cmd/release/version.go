package main

import (
	"fmt"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// checkVersion fails if a version cannot be a release of these modules.
func checkVersion(version string) error {
	major := semver.Major(version)
	switch {
	case !semver.IsValid(version), semver.Canonical(version) != version:
		return fmt.Errorf("%q is no version: use v0.1.0 or v0.2.0-rc.1", version)
	case major != "v0" && major != "v1":
		return fmt.Errorf("%s needs module paths that end in /%s", version, major)
	case module.IsPseudoVersion(version):
		return fmt.Errorf("%s has the form of a version that the go command makes of a commit", version)
	}
	return nil
}

// latest returns the highest version among the tags, or "".
func latest(tags []string) (version string) {
	for _, tag := range tags {
		if checkVersion(tag) == nil && (version == "" || semver.Compare(tag, version) > 0) {
			version = tag
		}
	}
	return version
}
