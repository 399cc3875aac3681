package leasehttp

import (
	"testing"
	"time"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

// Suspend lets d pass of what is trusted, without that a timer runs, as the suspension of
// a machine does.
func (l *Lease) Suspend(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trust = l.trust.Add(-d)
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	var config ClientConfig
	config.setDefaults()
	configdoc.Check(t, config)
}
