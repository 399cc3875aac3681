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
func ReadTTLPolicies(flag, file string) (policies []leaseserver.TTLPolicy, err error) {
	if file == "" {
		return nil, nil
	}
	err = eachLine(flag, file, "policy", func(at string, words []string) error {
		var p leaseserver.TTLPolicy
		durations := map[string]*time.Duration{"min": &p.Min, "max": &p.Max, "default": &p.Default}
		if err := checkOnce(at, words); err != nil {
			return err
		}
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			d := durations[name]
			switch {
			case name == "prefix" && value == "":
				return program.UsageError("%s: the prefix is empty: leave it out for all locks", at)
			case name == "prefix":
				p.Prefix = value
			case d == nil:
				return program.UsageError("%s has %q: use prefix=…, min=…, max=… and default=…", at, word)
			default:
				if *d, err = time.ParseDuration(value); err != nil || *d <= 0 {
					return program.UsageError("%s: %s is %q: use a positive duration such as 30s", at, name, value)
				}
			}
		}
		policies = append(policies, p)
		return nil
	})
	return policies, err
}
