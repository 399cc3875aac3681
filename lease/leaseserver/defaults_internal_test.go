package leaseserver

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	var config Config
	config.setDefaults()
	configdoc.Check(t, config, "Burst") // twice the Rate, and at least 1
}
