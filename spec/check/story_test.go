package check_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/notrun"
	"github.com/pglatch/pglatch/spec/check"
)

// walks is the number of random walks, with the seeds 1 to walks, and each has so many steps.
const (
	walks     = 40
	walkSteps = "2500"
)

var storyLine = regexp.MustCompile(`(?m)^ *((?:client|clock|node|writer|server|sender|store|user|fault|operator)(?: \d+)?: .*)$`)

// walk returns what a model prints in a random walk of SPIN.
func walk(t *testing.T, model string, seed int, defines ...string) (lines []string) {
	t.Helper()
	spin, err := exec.LookPath("spin")
	if err != nil {
		notrun.Skip(t, "spin is not installed: apt-get install spin")
	}
	dir := t.TempDir() // spin writes files beside it
	source, err := os.ReadFile(filepath.Join("..", model))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, model), source, 0o600))
	args := append([]string{"-T", "-n" + strconv.Itoa(seed), "-u" + walkSteps}, defines...)
	cmd := exec.CommandContext(t.Context(), spin, append(args, model)...)
	cmd.Dir = dir
	out, _ := cmd.CombinedOutput() // a mutant's walk ends with a failed assertion
	for _, found := range storyLine.FindAllStringSubmatch(string(out), -1) {
		lines = append(lines, strings.TrimSpace(found[1]))
	}
	require.NotEmpty(t, lines, string(out))
	return lines
}

// A storied is a model whose stories are replayed.
type storied struct {
	replay  func(lines []string) error
	bounds  []string // with many faults, for walks that do not end soon
	mutants []string
	kinds   int // walks show more kinds of lines than this
}

var storiedModels = map[string]storied{
	"shards.pml": {check.ShardStory, []string{"-DFAULTS=20", "-DCHANGES=10", "-DWRITES=20"}, []string{"NO_TRY_LOCK", "RELEASE_FIRST", "NO_GUARD", "NO_ROW_LOCK"}, 20},
	"turns.pml": {
		check.TurnStory,
		[]string{"-DSENDS=5", "-DRESENDS=2", "-DFAULTS=5", "-DINTERRUPTS=4", "-DRETRIES=0", "-DATTEMPTS=4", "-DPOISON=4"},
		[]string{"NO_TOKEN", "NO_ID", "ID_ENDS_WITH_MESSAGE"},
		15,
	},
	"session.pml": {check.LockStory, []string{"-DCLIENTS=3", "-DFAULTS=40", "-DCANCELS=40", "-DPROMPT"}, []string{"NO_MARGIN", "LEASE_FROM_ANSWER", "NO_PING"}, 20},
}

func TestTheTablesAcceptRandomWalksOfTheirModels(t *testing.T) {
	t.Parallel()
	number := regexp.MustCompile(`\d+`)
	for model, of := range storiedModels {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			kinds, all := make(map[string]int), 0
			for seed := 1; seed <= walks; seed++ {
				lines := walk(t, model, seed, of.bounds...)
				require.NoError(t, of.replay(lines), "%s, seed %d:\n%s", model, seed, strings.Join(lines, "\n"))
				all += len(lines)
				for _, line := range lines {
					kinds[number.ReplaceAllString(line, "N")]++
				}
			}
			t.Logf("%s: %d lines of %d kinds: %v", model, all, len(kinds), kinds)
			assert.Greater(t, len(kinds), of.kinds, "the walks see little of the model")
		})
	}
}

// The counter-examples of safety in testdata come from: go run -C tools ./cmd/spec -story NAME ../spec.
func TestTheTablesRefuseTheStoriesOfMutants(t *testing.T) {
	t.Parallel()
	for _, of := range storiedModels {
		for _, mutant := range of.mutants {
			text, err := os.ReadFile(filepath.Join("testdata", mutant+".txt"))
			require.NoError(t, err)
			err = of.replay(strings.Split(strings.TrimSpace(string(text)), "\n"))
			require.ErrorIs(t, err, check.ErrRefused, mutant)
			t.Log(err)
		}
	}
}
