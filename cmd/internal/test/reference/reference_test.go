package reference

import (
	"os"
	"path"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// variable is set by make reference: the test then writes the pages.
const variable = "PGLATCH_REFERENCE"

// blocks are the makers of all blocks.
func blocks(t *testing.T) map[string]func() string {
	t.Helper()
	a := readAPI(t)
	makers := map[string]func() string{
		"commands":         ofCommands,
		"flags":            ofFlags,
		"global flags":     ofGlobalFlags,
		"flags of limits":  func() string { return ofServer(limitFlags...) },
		"flags of servers": func() string { return ofServer(peerFlags...) },
		"routes":           func() string { return ofRoutes(a) },
		"parameters":       func() string { return ofParameters(a) },
		"request fields": func() string {
			return ofSchema(a, "AcquireRequest", "RenewRequest", "ReleaseRequest", "AdoptRequest", "ForceReleaseRequest")
		},
		"answer fields":    func() string { return ofSchema(a, "Lease", "Record") },
		"problem fields":   func() string { return ofSchema(a, "Problem") },
		"alerts":           func() string { return ofAlerts(t) },
		"lock metrics":     func() string { return ofMetrics(t, "observe/prometheus", "pglatch_lock_", "pglatch_locks_") },
		"election metrics": func() string { return ofMetrics(t, "observe/prometheus", "leader_") },
		"shard metrics":    func() string { return ofMetrics(t, "observe/prometheus", "pglatch_shard") },
		"turn metrics":     func() string { return ofMetrics(t, "observe/prometheus", "pglatch_turn", "pglatch_mailbox") },
		"lease metrics":    func() string { return ofMetrics(t, "observe/prometheus", "pglatch_lease_") },
		"server metrics":   func() string { return ofMetrics(t, "lease/leaseserver", "lock") },
		"fault matrix":     func() string { return ofFaults(t) },
	}
	for _, c := range configurations {
		makers[filepath.Join(c[0], c[1])] = func() string { return ofConfig(t, c[0], c[1]) }
	}
	return makers
}

var (
	limitFlags = []string{"rate", "burst", "max-wait", "max-waiters", "max-body", "store-timeout", "shutdown-timeout", "retention", "sweep-interval", "ttl-policy-file"}
	peerFlags  = []string{"advertise", "peer-token-file", "peer-cert", "peer-ca", "peer-tls-name"}
)

func TestTheReferencePagesAreAsGenerated(t *testing.T) {
	t.Parallel()
	makers := blocks(t)
	used := map[string]bool{}
	paths, err := filepath.Glob(filepath.Join(root, "docs/reference/*.md"))
	require.NoError(t, err)
	for _, path := range paths {
		page, err := os.ReadFile(path)
		require.NoError(t, err)
		filled, names, err := fill(string(page), makers)
		require.NoError(t, err, path)
		for _, name := range names {
			assert.False(t, used[name], "%s: another page has the block %q", path, name)
			used[name] = true
		}
		if filled != string(page) && os.Getenv(variable) != "" {
			require.NoError(t, os.WriteFile(path, []byte(filled), 0o644)) //nolint:gosec // the mode that git uses
			continue
		}
		assert.True(t, filled == string(page), "%s is not as the code has it: make reference", path)
	}
	for name := range makers {
		assert.True(t, used[name], "no page has the block %q", name)
	}
}

// The control: a block that differs, and one that nothing makes.
func TestABlockIsMadeAnew(t *testing.T) {
	t.Parallel()
	const page = "before\n\n<!-- generated: a b -->\n\nold\n\n<!-- end of generated: a b -->\n\nafter\n"
	filled, names, err := fill(page, map[string]func() string{"a b": func() string { return "new\n" }})
	require.NoError(t, err)
	assert.Equal(t, []string{"a b"}, names)
	assert.Equal(t, "before\n\n<!-- generated: a b -->\n\nnew\n\n<!-- end of generated: a b -->\n\nafter\n", filled)

	_, _, err = fill(page, nil)
	require.ErrorContains(t, err, `"a b"`)
}

// What the types mean in Go is hand-written: the description of the API does not have it.
func TestThePageHasEveryTypeOfProblem(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs/reference/lock-server-api.md"))
	require.NoError(t, err)
	for _, p := range readAPI(t).Components.Schemas["Problem"].Properties {
		if p.name == "type" {
			require.NotEmpty(t, p.Enum)
			for _, problem := range p.Enum {
				assert.Contains(t, string(page), code(path.Base(problem)))
			}
		}
	}
}
