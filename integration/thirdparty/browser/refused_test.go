package browser_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// last returns who did what with which outcome, in the newest line of the audit.
func (d desk) last(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(d.audit)
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	var e struct{ Who, Action, Outcome string }
	require.NoError(t, json.Unmarshal([]byte(lines[len(lines)-1]), &e))
	return strings.TrimSpace(strings.Join([]string{e.Who, e.Action, e.Outcome}, " "))
}

// post sends a request that the page's script would not send, and returns the status of the answer.
func (b *browser) post(path, header, media, body string) int {
	b.t.Helper()
	return eval[int](b, fmt.Sprintf("fetch(%q, {method: 'POST', headers: {'Content-Type': %q, 'Pglatch-Action': %q}, body: %q}).then(r => r.status)", path, media, header, body))
}

func TestAnActionWithoutItsRightIsRefusedInTheBrowserToo(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(1, 1)")
	require.NoError(t, err)
	d, b := newDesk(t, dsn), browse(t)
	const media = "application/json"
	end := fmt.Sprintf(`{"action":"terminate","session":%d}`, conn.PgConn().PID())
	forged := `{"confirm":"FORGED","why":"it hangs"}`

	b.signInAs(d.address, lookToken, "Signed in as lea, with the role look")
	assert.Equal(t, http.StatusForbidden, b.post("actions/prepare", "1", media, end), "a request by hand has no more rights")
	assert.Equal(t, "lea terminate refused", d.last(t))
	assert.Equal(t, http.StatusConflict, b.post("actions/do", "1", media, forged))
	assert.Equal(t, "lea do refused", d.last(t))
	b.open(d.address)
	b.until("#actions table", "refused")
	assert.Equal(t, http.StatusNoContent, b.post("actions/sign-out", "1", media, "{}"))

	b.signIn(d.address)
	assert.Equal(t, http.StatusForbidden, b.post("actions/prepare", "", media, end), "without the header of the page's script")
	assert.Equal(t, "eva prepare refused", d.last(t))
	assert.Equal(t, http.StatusForbidden, b.post("actions/do", "forged", media, forged))
	assert.Equal(t, "eva do refused", d.last(t))
	assert.Equal(t, http.StatusConflict, b.post("actions/do", "1", media, forged), "nobody was shown what it does")
	assert.Equal(t, "eva do refused", d.last(t))
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<h1>Another page</h1>")) }))
	t.Cleanup(other.Close)
	b.open(other.URL) // its port is another, so that the browser sends it the cookie
	b.until("h1", "Another page")
	assert.True(t, eval[bool](b, fmt.Sprintf("fetch(%q, {method: 'POST', mode: 'no-cors', credentials: 'include', body: %q}).then(() => true)", d.address+"actions/prepare", end)))
	assert.Equal(t, "eva prepare refused", d.last(t), "a page of another origin")
	b.open(d.address)
	b.until("#actions", "Signed in as eva")
	assert.Equal(t, http.StatusOK, b.post("actions/prepare", "1", media, end), "control: the page itself")

	require.NoError(t, os.WriteFile(d.people, []byte(lookToken+" role=look name=lea\n"), 0o600))
	d.Signal(syscall.SIGHUP)
	d.Saying(&d.Stderr, `msg="read again" what=people`)
	assert.Equal(t, http.StatusUnauthorized, b.post("actions/prepare", "1", media, end), "the token is not known any more")
	assert.Equal(t, "prepare refused", d.last(t))
	b.open(d.address)
	b.until("h1", "Sign in")
	require.NoError(t, conn.Ping(t.Context()), "nothing was ended")
}
