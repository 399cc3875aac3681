package lease

import "time"

// Suspended is m as it is after the machine was suspended: one clock ran on.
func (m Moment) Suspended(d time.Duration) Moment {
	m.at.Boot -= d
	return m
}
