package soak

import (
	"flag"
	"os"
)

// Repeatable makes rapid draw the same cases in each run of the short form; -rapid.seed on the command line selects
// others. TestMain calls it before flags are parsed. The long form draws new ones each time.
func Repeatable() {
	if seed := flag.Lookup("rapid.seed"); seed != nil && os.Getenv(Variable) != "1" {
		_ = seed.Value.Set("1") // a number
	}
}
