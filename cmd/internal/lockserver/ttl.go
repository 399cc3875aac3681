package lockserver

import (
	"strings"
	"time"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// ReadTTLPolicies reads a file of policies, one a line, each with at least one of these:
//
//	[prefix=jobs/] [min=1s] [max=10m] [default=30s] [# comment]
//
// Without a file it returns nil.
func ReadTTLPolicies(flag, file string) ([]leaseserver.TTLPolicy, error) {
	if file == "" {
		return nil, nil
	}
	content, err := readLines(flag, file)
	if err != nil {
		return nil, err
	}
	var policies []leaseserver.TTLPolicy
	for number, words := range wordsOfLines(content) {
		var p leaseserver.TTLPolicy
		durations := map[string]*time.Duration{"min": &p.Min, "max": &p.Max, "default": &p.Default}
		if err := checkOnce(flag, file, number, words); err != nil {
			return nil, err
		}
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			d := durations[name]
			switch {
			case name == "prefix" && value == "":
				return nil, program.UsageError("%s: line %d of %s: the prefix is empty: leave it out for all locks", flag, number, file)
			case name == "prefix":
				p.Prefix = value
			case d == nil:
				return nil, program.UsageError("%s: line %d of %s has %q: use prefix=…, min=…, max=… and default=…", flag, number, file, word)
			default:
				if *d, err = time.ParseDuration(value); err != nil || *d <= 0 {
					return nil, program.UsageError("%s: line %d of %s: %s is %q: use a positive duration such as 30s", flag, number, file, name, value)
				}
			}
		}
		policies = append(policies, p)
	}
	if policies == nil {
		return nil, program.UsageError("%s: %s has no policy", flag, file)
	}
	return policies, nil
}
