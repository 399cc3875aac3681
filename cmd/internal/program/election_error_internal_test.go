package program

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
)

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
