package doctorcmd

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDoctorSaysWhatDoesNotWorkOnASystem(t *testing.T) {
	t.Parallel()
	status, _ := platformOf("linux")
	assert.Equal(t, ok, status)
	for system, what := range map[string]string{"darwin": "keeps running when pglatch itself is killed", "windows": "cannot run a command", "freebsd": "may outlast"} {
		status, detail := platformOf(system)
		assert.Equal(t, warn, status, system)
		assert.Contains(t, detail, what)
	}
}
