package cli_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/cli"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/namespace"
)

// nowhere is a database that is not there.
const nowhere = "postgres://u:s3cret@127.0.0.1:1/d"

func TestMisuseEndsWith64AndOneLineThatSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"bogus":                                   `unknown command "bogus" for "pglatch"; see pglatch --help`,
		"lss":                                     "did you mean ls?; see pglatch --help",
		"run 1:2 --kill-after 10s -- true":        "two fifths of --session-ttl 15s",
		"lock agent/1":                            "did you mean run?",
		"leader stat":                             "did you mean status?; see pglatch leader --help",
		"completion bogus":                        `unknown command "bogus"`,
		"ls --bogus":                              "unknown flag: --bogus; see pglatch ls --help",
		"ls extra":                                "it takes no arguments, and got extra; see pglatch ls --help",
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
		stdout, stderr, code := run(t, at(nowhere), strings.Fields(args)...)
		assert.Equal(t, cli.ExitUsage, code, args)
		assert.Empty(t, stdout, args)
		assert.Contains(t, stderr, want, args)
		assert.True(t, strings.HasPrefix(stderr, "pglatch: "), stderr)
		assert.Equal(t, 1, strings.Count(stderr, "\n"), stderr)
		assert.NotContains(t, stderr, "s3cret")
	}
	_, stderr, code := run(t, []string{"PGLATCH_NAMESPACES=agent=1,oops"}, "key", "1:2")
	assert.Equal(t, cli.ExitUsage, code)
	assert.Contains(t, stderr, `PGLATCH_NAMESPACES is "oops"`)
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
		stdout, stderr, code := run(t, at(nowhere), strings.Fields(args)...)
		assert.Zero(t, code, args)
		assert.Empty(t, stderr, args)
		assert.Contains(t, stdout, want, args)
	}
	stdout, _, _ := run(t, nil, "version", "--json")
	v := decode[cli.Version](t, stdout)
	assert.NotEmpty(t, v.Version)
	assert.Contains(t, v.Platform, "/")
}

func TestEachConditionHasItsExitCode(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		code int
	}{
		{nil, 0},
		{&cli.ExitError{Code: 3}, 3},
		{fmt.Errorf("x: %w", &cli.ExitError{Code: 126, Err: errors.New("y")}), 126},
		{&advisory.HeldError{Key: namespace.Pair(1, 2)}, 75},
		{&advisory.TimeoutError{Key: namespace.Pair(1, 2), Cause: context.DeadlineExceeded}, 75},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrUnavailable}, 76},
		{&advisory.LostError{Key: namespace.Pair(1, 2), Cause: advisory.ErrRefused}, 76},
		{advisory.ErrUnavailable, 69},
		{advisory.ErrRefused, 77},
		{fmt.Errorf("%w: %w", leader.ErrConnection, advisory.ErrRefused), 77},
		{&pgconn.PgError{Code: "42501"}, 77},
		{&pgconn.PgError{Code: "57P03"}, 70},
		{advisory.ErrPooler, 69},
		{advisory.ErrStandby, 69},
		{advisory.ErrLockTableFull, 69},
		{&advisory.ConfigError{Field: "MaxConns"}, 64},
		{&namespace.ClashError{}, 64},
		{&cli.SignalError{Signal: syscall.SIGINT}, 130},
		{&cli.SignalError{Signal: syscall.SIGTERM}, 143},
		{errors.New("whatever"), 70},
	} {
		assert.Equal(t, c.code, cli.Code(c.err), "%v", c.err)
	}
}

func TestKeyShowsAllFormsWithoutADatabase(t *testing.T) {
	t.Parallel()
	type document struct {
		Key, Form         string
		ClassID, ObjID    uint32
		ObjSubID          uint16
		Key1, Key2        int32
		Bigint            int64 `json:",string"`
		LockSQL, QuerySQL string
	}
	names := []string{"PGLATCH_NAMESPACES=agent=1,order=2"}
	for _, c := range []struct {
		args string
		want document
		sql  string
	}{
		{"agent/42", document{Key: "agent/42", Form: "pair", ClassID: 1, ObjID: 42, ObjSubID: 2, Key1: 1, Key2: 42, Bigint: 1<<32 + 42}, "(1, 42)"},
		{"1:42", document{Key: "1:42", Form: "pair", ClassID: 1, ObjID: 42, ObjSubID: 2, Key1: 1, Key2: 42, Bigint: 1<<32 + 42}, "(1, 42)"},
		{"--key1 -1 --key2 2147483647", document{Key: "-1:2147483647", Form: "pair", ClassID: 1<<32 - 1, ObjID: 1<<31 - 1, ObjSubID: 2, Key1: -1, Key2: 1<<31 - 1, Bigint: -1<<32 + 1<<31 - 1}, "(-1, 2147483647)"},
		{"@12345", document{Key: "@12345", Form: "single", ObjID: 12345, ObjSubID: 1, Key2: 12345, Bigint: 12345}, "(12345)"},
		{"@-1", document{Key: "@-1", Form: "single", ClassID: 1<<32 - 1, ObjID: 1<<32 - 1, ObjSubID: 1, Key1: -1, Key2: -1, Bigint: -1}, "(-1)"},
		{"-- -1:5", document{Key: "-1:5", Form: "pair", ClassID: 1<<32 - 1, ObjID: 5, ObjSubID: 2, Key1: -1, Key2: 5, Bigint: -1<<32 + 5}, "(-1, 5)"},
	} {
		stdout, stderr, code := run(t, names, strings.Fields("key -o json "+c.args)...)
		require.Zero(t, code, stderr)
		assert.Equal(t, c.want, decode[document](t, stdout), c.args)
		assert.Contains(t, stdout, "SELECT pg_advisory_lock"+c.sql+";")
		text, _, _ := run(t, names, strings.Fields("key "+c.args)...)
		assert.Contains(t, text, fmt.Sprintf("l.classid = %d AND l.objid = %d AND l.objsubid = %d", c.want.ClassID, c.want.ObjID, c.want.ObjSubID))
		assert.Equal(t, 1, strings.Count(text, "(another lock)"))
	}

	order, err := namespace.Must(2, "order").Text("9F3C2D1E-0000-4000-8000-00000000ABCD")
	require.NoError(t, err)
	stdout, _, _ := run(t, names, "key", "--json", "order/9F3C2D1E-0000-4000-8000-00000000ABCD")
	got := decode[document](t, stdout)
	assert.Equal(t, order.Tag(), namespace.Tag{ClassID: got.ClassID, ObjID: got.ObjID, ObjSubID: got.ObjSubID})
	assert.Equal(t, order.String(), got.Key)
}

func TestTheFlagReplacesTheEnvironmentsNamespaces(t *testing.T) {
	t.Parallel()
	env := []string{"PGLATCH_NAMESPACES=agent=1,order=2"}
	stdout, _, code := run(t, env, "key", "--namespace", "agent=7", "agent/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "7, 1")
	_, _, code = run(t, env, "key", "--namespace", "agent=7", "order/1")
	assert.Equal(t, cli.ExitUsage, code)
	stdout, _, code = run(t, nil, "key", "--namespace", "agent=7,order=8", "order/1")
	assert.Zero(t, code)
	assert.Contains(t, stdout, "8, 1")
}
