package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	shardspg "github.com/pglatch/pglatch/leader/shards/postgres"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// otherUnits are the names in a document, with their paths, that say that a time is not in seconds.
func otherUnits(path string, document any) (found []string) {
	switch d := document.(type) {
	case []any:
		for _, v := range d {
			found = append(found, otherUnits(path+"[]", v)...)
		}
	case map[string]any:
		for name, v := range d {
			for _, unit := range []string{"_ns", "_us", "_ms"} {
				if strings.HasSuffix(name, unit) {
					found = append(found, path+"."+name)
				}
			}
			found = append(found, otherUnits(path+"."+name, v)...)
		}
	}
	return found
}

// Locks, elections and shards are told of in seconds; leases, and load, whose units are in the names, in milliseconds.
func TestDocumentsHaveOneUnitOfTime(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{".a[].age_ns"}, otherUnits("", map[string]any{"a": []any{map[string]any{"age_ns": 1}}}), "the control")

	dsn := pgtest.DSN(t)
	l, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, Answer: introspect.Config{Service: "billing"}})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	key := namespace.Must(2, "order").ID(42)
	_, err = l.Acquire(t.Context(), key)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { _, _ = l.With(advisory.Options{Wait: advisory.NoTimeout}).Acquire(ctx, key) })
	leads := clitest.Start(t, clitest.At(dsn), "leader", "run", "1:7", "--create-table", "--", "sh", "-c", "echo leads; exec sleep 600")
	await.Until(t, await.Soon, func() bool { return strings.Contains(leads.Stdout.String(), "leads") }, leads.Stderr.String)
	backend, err := shardspg.New(shardspg.Config{DSN: dsn, Namespace: namespace.Must(7, "tenant")})
	require.NoError(t, err)
	require.NoError(t, backend.Migrate(t.Context()))
	log := filepath.Join(t.TempDir(), "log")
	record := `{"msg":"work_ended","election":"e","identity":"%s","term":"1.%d","began":"2026-01-02T03:04:0%[2]d.1Z","ended":"2026-01-02T03:04:0%[2]d.2Z","lasted":100000000}` + "\n"
	require.NoError(t, os.WriteFile(log, fmt.Appendf(fmt.Appendf(nil, record, "a", 1), record, "b", 2), 0o600))

	for line, shows := range map[string]string{
		"ls":                   `"process":`,
		"status 2:42":          `"process":`,
		"tree":                 `"server":`,
		"ask 2:42":             `"process":`,
		"dump 2:42":            `"process":`,
		"doctor":               `"checks":`,
		"leader status 1:7":    `"since":`,
		"leader verify " + log: `"closest":`,
		"shards ls tenant=7":   `"nodes":`,
		"key 2:42":             `"key":`,
		"try 2:43":             `"key":`,
	} {
		args := append(strings.Fields(line), "-o", "json")
		var stdout, stderr string
		await.Until(t, await.Soon, func() bool {
			stdout, stderr, _ = clitest.Run(t, clitest.At(dsn), args...)
			return strings.Contains(stdout, shows)
		}, func() string { return line + "\n" + stdout + stderr })
		check(t, line, []byte(stdout))
	}

	m, err := monitor.Open(monitor.Config{DSN: dsn, Authorize: monitor.AllowAll})
	require.NoError(t, err)
	t.Cleanup(m.Close)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, monitor.Path, nil))
	require.Contains(t, answer.Body.String(), `"duration":`)
	check(t, monitor.Path, answer.Body.Bytes())
}

func check(t *testing.T, name string, text []byte) {
	t.Helper()
	var document any
	require.NoError(t, json.Unmarshal(text, &document), "%s: %s", name, text)
	assert.Empty(t, otherUnits("", document), name)
}

func TestMain(m *testing.M) { clitest.MainOf(m, "../../pglatch") }

func TestScript(t *testing.T) { clitest.Scripts(t) }

func TestADurationFlagTakesABareNumberOfSeconds(t *testing.T) {
	t.Parallel()
	cmd, _, err := cli.New(program.New(), cli.Options{}).Find([]string{"try"})
	require.NoError(t, err)
	hold := cmd.Flags().Lookup("hold").Value
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "5.0": 5 * time.Second, "0.25": 250 * time.Millisecond, ".5": time.Second / 2, "0": 0, "-1": -time.Second,
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond,
	} {
		require.NoError(t, hold.Set(text), text)
		assert.Equal(t, want.String(), hold.String(), text)
	}
	for _, text := range []string{"", "s", "5x", "1e3", "5 s", "0x5", "1,5"} {
		assert.Error(t, hold.Set(text), text)
	}
}

// pflag adds the default of a flag to its help, if it is not zero.
func TestEveryFlagNamesOneDefaultAndEveryDurationTakesSeconds(t *testing.T) {
	t.Parallel()
	durations, lines := 0, 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			assert.LessOrEqual(t, strings.Count(line, "(default"), 1, "%s: %s", cmd.CommandPath(), line)
			assert.NotContains(t, line, "(default 0s)", cmd.CommandPath())
			lines++
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				assert.NoError(t, f.Value.Set("5"), "%s --%s", cmd.CommandPath(), f.Name)
				durations++
			}
		})
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(cli.New(program.New(), cli.Options{}))
	assert.Greater(t, durations, 10)
	assert.Greater(t, lines, 100)
}
