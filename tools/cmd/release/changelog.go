package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const unreleased = "## Unreleased"

// errNothing is that a release would have nothing to say.
var errNothing = errors.New("CHANGELOG.md says nothing of this version: nothing is unreleased")

// releaseChangelog makes the section of a version of what is unreleased. A changelog that has such
// a section, and nothing unreleased, stays as it is.
func releaseChangelog(content, version string, day time.Time) (string, error) {
	head, rest, found := strings.Cut(content, unreleased+"\n")
	if !found {
		return "", fmt.Errorf("CHANGELOG.md has no %q", unreleased)
	}
	section, _, _ := strings.Cut(rest, "\n## ")
	number := strings.TrimPrefix(version, "v")
	empty, there := !strings.Contains(section, "\n- "), strings.Contains(rest, "\n## "+number+" - ")
	switch {
	case empty && there:
		return content, nil
	case empty:
		return "", errNothing
	case there:
		return "", fmt.Errorf("CHANGELOG.md has a section of %s, and something that is unreleased beside it", number)
	}
	return fmt.Sprintf("%s%s\n\n## %s - %s\n%s", head, unreleased, number, day.UTC().Format(time.DateOnly), rest), nil
}
