package browser_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// axeVersion is that of the checker of accessibility, which npm fetches.
const axeVersion = "4.10.3"

var axe struct {
	once   sync.Once
	source string
	err    error
}

// axeSource is axe-core. It is fetched once, and not kept with this module.
func axeSource(t *testing.T) string {
	t.Helper()
	axe.once.Do(func() {
		dir := t.TempDir()
		npm := exec.CommandContext(t.Context(), "npm", "install", "--prefix", dir, "--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "axe-core@"+axeVersion)
		if out, err := npm.CombinedOutput(); err != nil {
			axe.err = fmt.Errorf("npm: %w: %s", err, out)
			return
		}
		source, err := os.ReadFile(filepath.Join(dir, "node_modules", "axe-core", "axe.min.js"))
		axe.source, axe.err = string(source), err
	})
	require.NoError(t, axe.err, "NOT RUN: axe-core cannot be had")
	return axe.source
}

// accessible requires that axe finds nothing in what is shown.
func (b *browser) accessible(what string) {
	b.t.Helper()
	if !eval[bool](b, "typeof axe === 'object'") {
		eval[string](b, axeSource(b.t)+"; ''")
	}
	found := eval[[]string](b, `axe.run(document, {resultTypes: ["violations"]}).then(r => r.violations.flatMap(v =>
		v.nodes.map(n => v.id + ": " + v.help + "\n  " + n.html + "\n  " + (n.failureSummary || ""))))`)
	require.Empty(b.t, found, "%s:\n%s", what, strings.Join(found, "\n"))
}
