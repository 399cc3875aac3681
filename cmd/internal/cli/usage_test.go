package cli_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/cmd/internal/cli"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/test/clitest"
)

func TestMisuseEndsWith64AndOneLineThatSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"bogus":                                   `unknown command "bogus" for "pglatch"; see pglatch --help`,
		"lss":                                     "did you mean ls?; see pglatch --help",
		"run 1:2 --kill-after 10s -- true":        "must be 6s at most with --session-ttl 15s",
		"lock agent/1":                            "did you mean run?",
		"leader stat":                             "did you mean status?; see pglatch leader --help",
		"completion bogus":                        `unknown command "bogus"`,
		"ls --bogus":                              "unknown flag: --bogus; see pglatch ls --help",
		"tree extra":                              "it takes no arguments, and got extra; see pglatch tree --help",
		"ls 1extra":                               "invalid key",
		"ls 1:2 3:4":                              "accepts at most 1 arg",
		"ls --sort size":                          `--sort is "size": use trouble, wait, waiters, held, key`,
		"watch --longer-than -1s":                 "--longer-than is -1s",
		"ls -o xml":                               `--output is "xml": use text, json, jsonl`,
		"ls --color red":                          `--color is "red"`,
		"ls --log-level loud":                     `--log-level is "loud": use debug,`,
		"ls --log-format xml":                     `--log-format is "xml"`,
		"ls --connect-timeout soon":               `invalid argument "soon"`,
		"ls --connect-timeout -1s":                "--connect-timeout is -1s",
		"ls --database-url-file /no/such/file":    "--database-url-file: open /no/such/file",
		"ls --database-url-file /dev/null":        "/dev/null is empty",
		"watch --interval 1ms":                    "--interval is 1ms: use 250ms or more",
		"watch --rows 0":                          "--rows is 0",
		"doctor --session-ttl 1ms":                "--session-ttl is 1ms",
		"status":                                  "give one KEY",
		"status 1:2 3:4":                          "give one KEY",
		"status 1:2 --key1 1 --key2 2":            "not both",
		"key --key1 1":                            "missing [key2]",
		"key --key1 2147483648 --key2 1":          "value out of range",
		"key 1":                                   "invalid key",
		"key 1:2147483648":                        "two decimal int4",
		"lease get x --index 1":                   "--index is for --wait and --follow",
		"lease get x --index x -f":                `invalid argument "x"`,
		"lease get x --wait -1s":                  "--wait is -1s",
		"lease get x --wait 1s --follow":          "[follow wait]",
		"shards ls":                               "give GROUP (got 0 arguments)",
		"shards lst":                              "did you mean ls?; see pglatch shards --help",
		"shards drain g":                          "give GROUP NODE (got 1 arguments)",
		"shards pin g acme":                       "give GROUP SHARD NODE (got 2 arguments)",
		"shards pin g acme web-1 --remove":        "give GROUP SHARD --remove",
		"shards drain g web-1 --wait -1s":         "--wait is -1s",
		"shards drain g web-1 --undo --wait 1s":   "--wait is for a drain",
		"key @x":                                  "one decimal int8",
		"key agent/42":                            `unknown namespace "agent"`,
		"status agent/42":                         "--namespace",
		"key --namespace agent=1 agent/":          "the entity is empty",
		"key --namespace agent=1 order/1":         "say its number with --namespace",
		"key 1:2 --namespace agent":               `--namespace is "agent": use name=number`,
		"key 1:2 --namespace agent=x":             "use name=number",
		"key 1:2 --namespace agent=0":             "1 to 32767",
		"key 1:2 --namespace a=1 --namespace b=1": "one number",
		"ls --namespace agent":                    "say its number",
	} {
		stdout, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), strings.Fields(args)...)
		assert.Equal(t, program.ExitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want, args)
		assert.True(t, strings.HasPrefix(stderr, "pglatch: "), stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		assert.NotContains(t, stderr, "s3cret")
	}
	_, stderr, code := clitest.Run(t, []string{"PGLATCH_NAMESPACES=agent=1,oops"}, "key", "1:2")
	assert.Equal(t, program.ExitUsage, code)
	assert.Contains(t, stderr, `PGLATCH_NAMESPACES is "oops"`)
}

// pflag adds the default of a flag to its help, if it is not zero.
func TestHelpNamesOneDefaultOfEachFlag(t *testing.T) {
	t.Parallel()
	app := program.New()
	root := cli.New(app, cli.Options{})
	flags := 0
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.LocalFlags().FlagUsages()) {
			flags++
			assert.LessOrEqual(t, strings.Count(line, "(default"), 1, "%s: %s", cmd.CommandPath(), line)
			assert.NotContains(t, line, "(default 0s)", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(root)
	assert.Greater(t, flags, 100)
}

func TestHelpVersionAndCompletionNeedNoDatabase(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"":                "Usage:",
		"help":            "Exit codes",
		"ls --help":       "List the advisory locks",
		"completion":      "autocompletion",
		"completion bash": "bash completion",
		"completion zsh":  "#compdef pglatch",
		"--version":       "pglatch",
		"version":         "go1.",
	} {
		stdout, stderr, code := clitest.Run(t, clitest.At(clitest.Nowhere), strings.Fields(args)...)
		assert.Zero(t, code, args)
		assert.Empty(t, stderr, args)
		assert.Contains(t, stdout, want, args)
	}
	stdout, _, _ := clitest.Run(t, nil, "version", "--json")
	v := clitest.Decode[cli.Version](t, stdout)
	assert.NotEmpty(t, v.Version)
	assert.Contains(t, v.Platform, "/")
}
