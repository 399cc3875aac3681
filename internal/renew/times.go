package renew

import (
	"cmp"
	"fmt"
	"time"
)

// The default of a Times' Duration in elections, groups of shards and sessions, and its limits.
const (
	DefaultDuration = 15 * time.Second
	MinDuration     = 500 * time.Millisecond
	MaxDuration     = 24 * time.Hour
)

// least is the shortest interval. A smaller value is probably a number without its unit.
const least = 10 * time.Millisecond

// Times are those of one right: a leadership, a session, a lease or a claim.
//
// Three things are not here, because they differ on purpose. A lease and a claim have limits of
// their own, because short jobs use them. Heartbeats of package leasehttp double their pauses,
// because a lock server has many clients. A session has no Timeout that ends a ping, because giving
// up a ping means giving up the session.
//
//	├─ Interval ─┬─ Timeout ─┬── … ──┬─ Drain ─┬─ margin ─┤
//	0         renewal     failed     work     gone     Duration
type Times struct {
	Duration time.Duration // from the start of a good renewal until the right ends
	Interval time.Duration // from the start of a good renewal to the start of the next one
	Timeout  time.Duration // of one renewal
	Drain    time.Duration // that work has to stop at the end, if renewals fail
}

// WithDefaults replaces zero fields by their defaults, and a negative Drain by none. The default
// Interval and Timeout are a third of the Duration, and the default Drain is a tenth.
func (t Times) WithDefaults() Times {
	t.Duration = cmp.Or(t.Duration, DefaultDuration)
	t.Interval = cmp.Or(t.Interval, t.Duration/3)
	t.Timeout = cmp.Or(t.Timeout, t.Duration/3)
	t.Drain = max(cmp.Or(t.Drain, t.Duration/10), 0)
	return t
}

// Trust is the time from the start of a good renewal to the deadline by which the holder stops.
func (t Times) Trust() time.Duration { return t.Duration - Margin(t.Duration) - t.Drain }

// Slack is the time from the start of a renewal to the deadline, if the last one was good.
func (t Times) Slack() time.Duration { return t.Trust() - t.Interval }

// Fit reports whether one slow renewal leaves time for the next.
func (t Times) Fit() bool { return t.Slack() > t.Timeout }

// Rules return when to renew, with equal pauses of a fifth of the Interval.
func (t Times) Rules() Rules {
	return Rules{Interval: t.Interval, Timeout: t.Timeout, Pause: t.Interval / 5, Longest: t.Interval / 5}
}

// Check returns an error for times out of bounds, and for times with which one slow renewal would
// reach the deadline. wrong makes the error. The fields have the names of a leader.Config.
func (t Times) Check(wrong func(field string, value any, remedy string) error) error {
	switch margin := Margin(t.Duration); {
	case t.Duration < MinDuration || t.Duration > MaxDuration:
		return wrong("LeaseDuration", t.Duration, "use 500ms to 24h, or 0 for the default of 15s")
	case t.Interval < least:
		return wrong("RenewInterval", t.Interval, "use 10ms at least, or 0 for a third of LeaseDuration")
	case t.Timeout < least:
		return wrong("RenewTimeout", t.Timeout, "use 10ms at least, or 0 for a third of LeaseDuration")
	case !t.Fit():
		return wrong("LeaseDuration", t.Duration, fmt.Sprintf(
			"LossDrain %v + RenewInterval %v + RenewTimeout %v = %v, which must be less than LeaseDuration %v - margin %v = %v: lengthen the lease or shorten one of them",
			t.Drain, t.Interval, t.Timeout, t.Drain+t.Interval+t.Timeout, t.Duration, margin, t.Duration-margin))
	}
	return nil
}
