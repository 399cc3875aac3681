package postgres

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/configdoc"
	"github.com/pglatch/pglatch/namespace"
)

// PretendStale makes the backend take another's session for its own from before.
func (b *Backend) PretendStale(other *Backend) {
	b.stale = &serverSession{other.current.pid, other.current.backendStart, "of before"}
}

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _, err := Config{DSN: "postgres://localhost/shop", Key: namespace.Pair(100, 1)}.validated()
	require.NoError(t, err)
	configdoc.Check(t, config, "DSN", "Key")
}
