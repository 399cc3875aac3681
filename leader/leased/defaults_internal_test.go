package leased

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _ := Config{}.validated(nil) // Name and the store are missing
	configdoc.Check(t, config)
}
