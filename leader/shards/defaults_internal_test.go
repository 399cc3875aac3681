package shards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// oneSession is a backend that only has a session.
type oneSession struct{ driver.Backend }

func (oneSession) Sessions() int { return 1 }

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{Name: "tenant", Backend: oneSession{}, Count: 1}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config, "Count")
}
