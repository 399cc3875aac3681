package shards

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/boottime"
	"github.com/pglatch/pglatch/internal/renew"
	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/leader/shards/driver"
)

// Distrust lets the last renewals of all sessions be long past, and no timer run, as after a
// suspend of the machine.
func (n *Node) Distrust() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.sessions {
		o.until.Set(boottime.Moment{})
	}
}

// Hurry has the node open the next session at once, however early the last one ended.
func (n *Node) Hurry() { n.comeback = renew.Comeback{} }

// oneSession is a backend that only has a session.
type oneSession struct{ driver.Backend }

func (oneSession) Sessions() int { return 1 }

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{Name: "tenant", Backend: oneSession{}, Count: 1}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config, "Count")
}
