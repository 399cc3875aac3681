package leader

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _ := Config{}.withDefaults() // Name and Backend are missing
	configdoc.Check(t, config)
}
