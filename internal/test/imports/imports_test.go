// Package imports_test counts the packages that an import of this library adds to a program, and checks that imports
// point down.
package imports_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/pglatch/pglatch"

// linked lists the packages of others, and their modules, that a program with one import
// compiles. The program is in a separate module, like a user's.
func linked(t *testing.T, path string) (packages, modules []string) {
	t.Helper()
	root, err := filepath.Abs("../../..")
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
	count := map[string]bool{}
	for line := range strings.Lines(list(t, dir, "-mod=mod", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}", ".")) {
		pkg, mod, _ := strings.Cut(strings.TrimSpace(line), " ")
		if mod != module && mod != "outside.example/program" {
			packages = append(packages, pkg)
			count[mod] = true
		}
	}
	return packages, slices.Sorted(maps.Keys(count))
}

// list runs "go list" without a network.
func list(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off")
	var says strings.Builder
	cmd.Stderr = &says
	output, err := cmd.Output()
	require.NoError(t, err, says.String())
	return string(output)
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(content)
}

// The eight are pgx, its three, google/uuid and three of golang.org/x. Our own module does not count.
func TestALockFromPostgreSQLCompilesEightModulesOfOthers(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{
		"advisory", "advisory/advisorytest", "introspect", "middleware", "monitor", "leader/postgres", "lease/postgres",
	} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			_, modules := linked(t, module+"/"+pkg)
			assert.Contains(t, modules, "github.com/jackc/pgx/v5")
			assert.LessOrEqual(t, len(modules), 8, modules)
		})
	}
}

func TestARouterIsCompiledWithItsAdapterOnly(t *testing.T) { // the control of the test above
	t.Parallel()
	for _, pkg := range []string{"middleware/echov4", "monitor/echov4"} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			_, modules := linked(t, module+"/"+pkg)
			assert.Contains(t, modules, "github.com/labstack/echo/v4")
			assert.Greater(t, len(modules), 8)
		})
	}
}

// The clock that continues while a machine is suspended needs golang.org/x/sys/unix.
func TestAProgramWithTheLeaseClientLinksTheStandardLibraryAndOurPackagesOnly(t *testing.T) {
	t.Parallel()
	packages, _ := linked(t, module+"/lease/leasehttp")
	assert.Subset(t, []string{"golang.org/x/sys/unix"}, packages)
	packages, _ = linked(t, module+"/lease/leaseserver")
	assert.Contains(t, packages, "github.com/prometheus/client_golang/prometheus/promhttp", "the control")
	assert.NotContains(t, packages, "github.com/labstack/echo/v4")
}

// A suite that programs call from their own tests is the exception.
func TestNoPackageOfTheLibraryLinksTesting(t *testing.T) {
	t.Parallel()
	suites := []string{"leader/leadertest", "leader/shards/shardstest", "lease/leasetest", "middleware/middlewaretest", "once/oncetest", "turns/turnstest"}
	checked, found := 0, []string{}
	for line := range strings.Lines(list(t, "../../..", "-f", `{{.ImportPath}} {{join .Deps " "}}`, "./...")) {
		pkg, deps, _ := strings.Cut(strings.TrimSpace(line), " ")
		pkg = strings.TrimPrefix(pkg, module+"/")
		if strings.Contains(pkg, "internal/test/") || strings.HasPrefix(pkg, "examples/") {
			continue
		}
		checked++
		if slices.Contains(strings.Fields(deps), "testing") {
			found = append(found, pkg)
		}
	}
	assert.Greater(t, checked, 30)
	assert.Subset(t, suites, found)
	assert.NotEmpty(t, found, "the control: the suites link it")
}

// An adapter has no rules of its own: code beyond this limit belongs in the core.
func TestARoutersModuleIsFiftyLinesOfCodeAtMost(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"echov5/echo.go", "ginv1/gin.go", "fiberv3/fiber.go", "grpcv1/grpc.go", "connectv1/connect.go"} {
		source, lines, imports := readFile(t, "../../../middleware/"+name), 0, true
		for line := range strings.Lines(source) {
			line = strings.TrimSpace(line)
			if imports {
				imports = line != ")"
			} else if line != "" && !strings.HasPrefix(line, "//") {
				lines++
			}
		}
		assert.LessOrEqual(t, lines, 50, name)
		assert.Greater(t, lines, 10, name)
	}
}
