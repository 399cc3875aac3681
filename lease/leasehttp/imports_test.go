package leasehttp_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/pglatch/pglatch"

// links lists the packages of other modules that a program of one import links, which
// is in a module of its own.
func links(t *testing.T, path string) []string {
	t.Helper()
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod": strings.Replace(readFile(t, filepath.Join(root, "go.mod")), "module "+module, "module outside.example/program", 1) +
			"\nrequire " + module + " v0.0.0\n\nreplace " + module + " => " + root + "\n",
		"go.sum": readFile(t, filepath.Join(root, "go.sum")),
		"p.go":   "package main\n\nimport _ \"" + path + "\"\n\nfunc main() {}\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	list := exec.CommandContext(t.Context(), "go", "list", "-mod=mod", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	var says strings.Builder
	list.Stderr = &says
	output, err := list.Output()
	require.NoError(t, err, says.String())
	var others []string
	for linked := range strings.FieldsSeq(string(output)) {
		if !strings.HasPrefix(linked, "outside.example/") && !strings.HasPrefix(linked, module+"/") {
			others = append(others, linked)
		}
	}
	return others
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}

// The clock that goes on while a machine is suspended needs golang.org/x/sys/unix.
func TestAProgramWithTheClientLinksTheStandardLibraryAndOurPackagesOnly(t *testing.T) {
	t.Parallel()
	assert.Subset(t, []string{"golang.org/x/sys/unix"}, links(t, module+"/lease/leasehttp"))
	assert.Contains(t, links(t, module+"/lease/leaseserver"), "github.com/labstack/echo/v4", "the control")
}
