package leasehttp

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	var config ClientConfig
	config.setDefaults()
	configdoc.Check(t, config)
}
