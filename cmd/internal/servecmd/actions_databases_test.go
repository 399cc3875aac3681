package servecmd_test

import (
	"fmt"
	"net"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// at is the page of one of several databases.
func (c *console) at(label, dsn string) *console {
	one := *c
	one.url, one.dsn = c.url+label+"/", dsn
	return &one
}

func TestAnActionIsOnTheDatabaseOfItsPage(t *testing.T) {
	t.Parallel()
	dsn, other := pgtest.DSN(t), pgtest.DSN(t)
	c := newConsole(t, "--dsn", "prod="+dsn, "--dsn", "staging="+other)
	prod, staging := c.at("prod", dsn), c.at("staging", other)
	conn, pid := prod.session("web-3", 1)
	neighbour, _ := staging.session("web-3", 1)
	request := fmt.Sprintf(`{"action":"terminate","session":%d}`, pid)

	a := staging.send(endToken, "prepare", request)
	assert.Equal(t, http.StatusUnprocessableEntity, a.status, "the session is of the other database: %+v", a)
	a = prod.send(endToken, "prepare", request)
	require.Equal(t, http.StatusOK, a.status, "%+v", a)
	shown := clitest.Connect(t, dsn, "whoever").Config()
	place := shown.Database + " on " + net.JoinHostPort(shown.Host, fmt.Sprint(shown.Port))
	assert.Equal(t, "It is on the database prod: "+place+".", a.Effect[0])
	assert.Equal(t, http.StatusConflict, staging.confirm(endToken, a.Confirm, "it hangs").status, "it was shown on the other page")
	assert.Equal(t, []string{"refused", "it hangs"}, []string{c.last().Outcome, c.last().Why})
	assert.Equal(t, http.StatusForbidden, prod.send(askToken, "prepare", request).status)
	assert.Equal(t, http.StatusUnauthorized, prod.send("", "prepare", request).status)
	assert.Equal(t, http.StatusMethodNotAllowed, c.send(endToken, "prepare", request).status, "the list has no actions")
	require.True(t, lives(t, conn))

	a = prod.confirm(endToken, a.Confirm, "it hangs")
	assert.Equal(t, "done", a.Outcome, "control: %+v", a)
	assert.False(t, lives(t, conn))
	assert.True(t, lives(t, neighbour))
	assert.Equal(t, entry{Who: "eva", Role: "end", Action: "terminate", Target: fmt.Sprintf("database prod (%s), session %d", place, pid), Why: "it hangs", Outcome: "done"}, c.essential())
	assert.Len(t, staging.state(lookToken).Keys, 1)
}
