// Package times has the times of a lease that elections and nodes of shards renew.
package times

import (
	"cmp"
	"fmt"
	"time"

	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/leader/driver"
)

// least is the shortest interval. A smaller value is probably a number without its unit.
const least = 10 * time.Millisecond

// Times are the fields of these names in the Configs of leader and leader/shards.
type Times struct{ LeaseDuration, RenewInterval, RenewTimeout, LossDrain time.Duration }

// WithDefaults replaces zero fields by their defaults, and a negative LossDrain by none.
func (t Times) WithDefaults() Times {
	t.LeaseDuration = cmp.Or(t.LeaseDuration, driver.DefaultLeaseDuration)
	t.RenewInterval = cmp.Or(t.RenewInterval, t.LeaseDuration/3)
	t.RenewTimeout = cmp.Or(t.RenewTimeout, t.LeaseDuration/3)
	t.LossDrain = max(cmp.Or(t.LossDrain, t.LeaseDuration/10), 0)
	return t
}

// Check returns a *driver.ConfigError for times out of bounds, and for times with which one slow
// renewal would reach the deadline.
func (t Times) Check() error {
	switch margin := renew.Margin(t.LeaseDuration); {
	case t.LeaseDuration < driver.MinLeaseDuration || t.LeaseDuration > driver.MaxLeaseDuration:
		return wrong("LeaseDuration", t.LeaseDuration, "use 500ms to 24h, or 0 for the default of 15s")
	case t.RenewInterval < least:
		return wrong("RenewInterval", t.RenewInterval, "use 10ms at least, or 0 for a third of LeaseDuration")
	case t.RenewTimeout < least:
		return wrong("RenewTimeout", t.RenewTimeout, "use 10ms at least, or 0 for a third of LeaseDuration")
	case t.Trust()-t.RenewInterval <= t.RenewTimeout:
		return wrong("LeaseDuration", t.LeaseDuration, fmt.Sprintf(
			"LossDrain %v + RenewInterval %v + RenewTimeout %v = %v, which must be less than LeaseDuration %v - margin %v = %v: lengthen the lease or shorten one of them",
			t.LossDrain, t.RenewInterval, t.RenewTimeout, t.LossDrain+t.RenewInterval+t.RenewTimeout, t.LeaseDuration, margin, t.LeaseDuration-margin))
	}
	return nil
}

func wrong(field string, value time.Duration, remedy string) error {
	return &driver.ConfigError{Field: field, Value: value, Remedy: remedy}
}

// Trust is the time from the start of a good renewal to the deadline by which the holder stops.
func (t Times) Trust() time.Duration {
	return t.LeaseDuration - renew.Margin(t.LeaseDuration) - t.LossDrain
}

// Rules return when to renew.
func (t Times) Rules() renew.Rules { return renew.Steadily(t.RenewInterval, t.RenewTimeout) }
