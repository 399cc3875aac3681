package main

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

const unreleased = "## Unreleased"

// errNothing means that nothing is unreleased, so a release would be empty.
var errNothing = errors.New("CHANGELOG.md says nothing of this version: nothing is unreleased")

// releaseChangelog turns the unreleased section into the section of a version. A changelog that
// already has such a section, and nothing unreleased, stays unchanged.
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
