package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, err := Config{}.withDefaults()
	require.NoError(t, err)
	configdoc.Check(t, config)
}
