package once

import (
	"testing"

	"github.com/pglatch/pglatch/internal/test/configdoc"
)

func TestCommentsOfTheConfigSayItsDefaults(t *testing.T) {
	t.Parallel()
	config, _ := Config{}.validated() // the Store is missing
	configdoc.Check(t, config)
}
