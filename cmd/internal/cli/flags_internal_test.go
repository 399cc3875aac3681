package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/cmd/internal/program"
)

func TestADurationFlagTakesABareNumberOfSeconds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{
		"5": 5 * time.Second, "5.0": 5 * time.Second, "0.25": 250 * time.Millisecond, ".5": time.Second / 2, "0": 0, "-1": -time.Second,
		"90s": 90 * time.Second, "1m30s": 90 * time.Second, "250ms": 250 * time.Millisecond,
	} {
		var d time.Duration
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.DurationVar(&d, "wait", 0, "")
		f := flags.Lookup("wait")
		f.Value = seconds{f.Value}
		require.NoError(t, flags.Parse([]string{"--wait", text}), text)
		assert.Equal(t, want, d, text)
	}
	for _, text := range []string{"", "s", "5x", "1e3", "5 s", "0x5", "1,5"} {
		flags := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Duration("wait", 0, "")
		assert.Error(t, seconds{flags.Lookup("wait").Value}.Set(text), text)
	}
}

// pflag adds the default of a flag to its help, if it is not zero.
func TestEveryFlagNamesOneDefaultAndEveryDurationTakesSeconds(t *testing.T) {
	t.Parallel()
	durations, lines := 0, 0
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() == "duration" {
				assert.IsType(t, seconds{}, f.Value, f.Name)
				durations++
			}
		})
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			assert.LessOrEqual(t, strings.Count(line, "(default"), 1, "%s: %s", cmd.CommandPath(), line)
			assert.NotContains(t, line, "(default 0s)", cmd.CommandPath())
			lines++
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	look(New(program.New(), Options{}))
	assert.Greater(t, durations, 10)
	assert.Greater(t, lines, 100)
}
