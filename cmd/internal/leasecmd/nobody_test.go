package leasecmd_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestWhereNoServerListensACommandSaysHowToStartOne(t *testing.T) {
	t.Parallel()
	const at = "http://127.0.0.1:1" // no program gets this port by chance
	for _, command := range []string{
		"lease get job", "lease list", "lease acquire job", "lease acquire job -w 2s", "lease run job -n -- true", "lease run job -w 2s -- true", "load --duration 1s",
		"lease release job --lease-id x --fencing-token 1", "lease renew job --lease-id x --fencing-token 1",
	} {
		_, stderr, code := clitest.Run(t, []string{"PGLATCH_LOCK_SERVER=" + at}, strings.Fields(command)...)
		assert.Equal(t, 69, code, command)
		assert.Contains(t, stderr, "no lock server answers at "+at, command)
		assert.Contains(t, stderr, "start one: pglatch serve locks", command)
		assert.NotContains(t, stderr, "outcome unknown", command)
	}
}
