package program_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestTheFlagReplacesTheEnvironmentsNamespaces(t *testing.T) {
	t.Parallel()
	env := []string{"PGLATCH_NAMESPACES=agent=1,order=2"}
	stdout, _, code := clitest.Run(t, env, "key", "--namespace", "agent=7", "agent/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "7, 1")
	_, _, code = clitest.Run(t, env, "key", "--namespace", "agent=7", "order/1")
	assert.Equal(t, program.ExitUsage, code)
	stdout, _, code = clitest.Run(t, nil, "key", "--namespace", "agent=7,order=8", "order/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "8, 1")
}
