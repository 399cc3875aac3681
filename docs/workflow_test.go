package docs_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The workflows of a fork, the templates and AGENTS.md name targets that make knows.
func TestFilesForContributorsNameTargetsThatExist(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	named := 0
	for _, pattern := range []string{"../.github/*.md", "../.github/workflows/*.yml", "../AGENTS.md"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, file := range files {
			content, err := os.ReadFile(file)
			require.NoError(t, err)
			for _, m := range regexp.MustCompile("(?:run: |`)make ([a-z-]+)").FindAllStringSubmatch(string(content), -1) {
				assert.Contains(t, string(makefile), "\n"+m[1]+":", file)
				named++
			}
		}
	}
	assert.Greater(t, named, 10)
}

func TestAReportOfAFaultAsksForWhatIsNeeded(t *testing.T) {
	t.Parallel()
	form, err := os.ReadFile("../.github/ISSUE_TEMPLATE/bug.yml")
	require.NoError(t, err)
	for _, field := range []string{"version", "server", "dsn", "pooler", "doctor"} {
		assert.Regexp(t, `(?s)id: `+field+`\n.{1,700}?required: true`, string(form))
	}
}
