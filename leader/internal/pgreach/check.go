package pgreach

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pglatch/pglatch/leader/driver"
)

// Check validates the arguments of an attempt to lead, or to be a member. remedy is the advice for an identity that
// PostgreSQL cannot store.
func Check(identity, remedy string, ttl time.Duration) error {
	switch {
	case identity == "" || !utf8.ValidString(identity) || strings.ContainsRune(identity, 0):
		return &driver.ConfigError{Field: "Identity", Value: fmt.Sprintf("%q", identity), Remedy: remedy}
	case ttl < driver.MinLeaseDuration || ttl > driver.MaxLeaseDuration:
		return &driver.ConfigError{Field: "LeaseDuration", Value: ttl, Remedy: "use 500ms to 24h"}
	}
	return nil
}
