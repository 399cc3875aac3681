package program

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
)

func TestAPasswordIsHiddenInEverySpelling(t *testing.T) {
	t.Parallel()
	for _, password := range []string{"s3cret", `s3"cret`, `s3\cret`, "s3 cret/@:?#%&<>", "s3cret\nnext", "sécret世", "s3'cret"} {
		text := "postgres://" + url.UserPassword("u", password).String() + "@127.0.0.1:1/d"
		cc, err := pgx.ParseConfig(text)
		require.NoError(t, err)
		require.Equal(t, password, cc.Password)
		for _, format := range []string{"text", "json"} {
			var b bytes.Buffer
			r := &redactor{to: &b}
			r.hide(cc, text)
			logger := (&settings{logFormat: format}).newLogger(r, nil)
			logger.Info("message", slog.String("password", password), slog.String("url", text), slog.String("query", url.QueryEscape(password)))
			_, err = r.Write([]byte("as it is: " + password + ", " + url.PathEscape(password) + ", " + text + "\n"))
			require.NoError(t, err)
			for _, part := range []string{"cret", "next"} {
				assert.NotContains(t, b.String(), part)
			}
			assert.Equal(t, 6, strings.Count(b.String(), redacted), b.String())
		}
	}
}

func TestANameThatIsAlsoThePasswordIsNotBlottedOut(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig("postgres://postgres:postgres@127.0.0.1/d")
	require.NoError(t, err)
	var b bytes.Buffer
	r := &redactor{to: &b}
	r.hide(cc, "postgres://postgres:postgres@127.0.0.1/d")
	_, err = r.Write([]byte(`user "postgres" of postgres://postgres:postgres@127.0.0.1/d`))
	require.NoError(t, err)
	assert.Equal(t, `user "postgres" of xxxxx`, b.String())
}

func TestAPasswordThatIsAPartOfOtherWordsDoesNotBlotThemOut(t *testing.T) {
	t.Parallel()
	const message = "pglatch: latch/42 is held; p, a and pglatch-latch"
	for password, want := range map[string]string{
		"p": message, "a": message,
		"latch": "pglatch: xxxxx/42 is held; p, a and pglatch-xxxxx",
	} {
		text := "postgres://u:" + password + "@127.0.0.1/d"
		cc, err := pgx.ParseConfig(text)
		require.NoError(t, err)
		var b bytes.Buffer
		r := &redactor{to: &b}
		r.hide(cc, text)
		_, err = r.Write([]byte(message))
		require.NoError(t, err)
		assert.Equal(t, want, b.String())
	}
}

func TestErrorsOfElectionsNameFlagsAndHaveTheRightExitCodes(t *testing.T) {
	t.Parallel()
	_, times := leader.New(leader.Config{Name: "x", Backend: &postgres.Backend{}, RenewInterval: 14 * time.Second})
	var config *leader.ConfigError
	require.ErrorAs(t, times, &config)
	for _, c := range []struct {
		err  error
		code int
		says string
	}{
		{fmt.Errorf("leader: x: %w", times), ExitUsage, "--lease-duration is 15s: loss drain 1.5s + --health-interval 14s + --renew-timeout 5s"},
		{&leader.ConfigError{Field: "Identity", Value: `""`, Remedy: "use text"}, ExitUsage, `--id is "": use text`},
		{fmt.Errorf("leader: x: %w", &lease.InvalidError{Field: "holder", Value: "x", Remedy: "shorten it"}), ExitUsage, "holder is x"},
		{fmt.Errorf("leader: x: %w", &postgres.TableError{Table: "t", Missing: true, Cause: errors.New("42P01")}), ExitUnavailable, `the table t, which counts terms, does not exist: run "pglatch migrate"`},
		{fmt.Errorf("leader: x: %w", &postgres.TableError{Table: "t", Outdated: true, Cause: errors.New("42703")}), ExitUnavailable, "leader: x: leader: the table t lacks a column"},
		{fmt.Errorf("leader: x: %w", &postgres.TableError{Table: "t", Cause: &pgconn.PgError{Code: "42501"}}), ExitRefused, "leader: x: leader: the role may not count terms in t: GRANT SELECT, INSERT, UPDATE"},
		{fmt.Errorf("leader: x: %w: %w", leader.ErrGaveUp, errors.New("why")), ExitBusy, "leader: x: election given up: why"},
		{nil, ExitOK, ""},
	} {
		err := ElectionError(c.err)
		assert.Equal(t, c.code, Code(err), "%v", c.err)
		if err != nil {
			assert.Contains(t, err.Error(), c.says)
		}
	}
}
