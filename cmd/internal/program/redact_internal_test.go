package program

import (
	"bytes"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
