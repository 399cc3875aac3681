package monitor_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/capture"
	"github.com/pglatch/pglatch/monitor"
)

func TestABadConfigIsRefusedWithItsRemedyAndWithoutAPassword(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]monitor.Config{
		"DSN is empty: set it to":              {},
		"DSN is set beside ConnConfig":         {DSN: "host=x", ConnConfig: &pgx.ConnConfig{}},
		"ConnConfig is not made by":            {ConnConfig: &pgx.ConnConfig{}},
		"MinInterval is -1ns: use a positive":  {DSN: "host=x", MinInterval: -1},
		"DSN is invalid: a / before the @":     {DSN: "postgres://u:s3cret/x@host/d"},
		"a percent sign in a password is %25":  {DSN: "postgres://u:s3cret%zz@host:port/d"},
		"the text is withheld":                 {DSN: "host=x password='s3cret"},
		"DSN is invalid: a port that is not a": {DSN: "postgres://u:s3cret@host:99999999/d"},
	} {
		_, err := monitor.Open(config)
		var bad *monitor.ConfigError
		require.ErrorAs(t, err, &bad, want)
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestErrorsOfTheConnectionHoldNoPassword(t *testing.T) {
	t.Parallel()
	var log capture.Text
	m := open(t, monitor.Config{DSN: "postgres://u:s3cret@127.0.0.1:1/d", Logger: log.Logger()})
	_, err := m.Snapshot(t.Context())
	require.ErrorContains(t, err, "monitor: read pg_locks: ")
	assert.NotContains(t, err.Error(), "s3cret")
	assert.Contains(t, log.String(), "lock_snapshot_failed")
	assert.NotContains(t, log.String(), "s3cret")
}

func TestTheCallersConnConfigIsNotChanged(t *testing.T) {
	t.Parallel()
	cc, err := pgx.ParseConfig("host=127.0.0.1 port=1 application_name=mine")
	require.NoError(t, err)
	open(t, monitor.Config{ConnConfig: cc})
	assert.Equal(t, "mine", cc.RuntimeParams["application_name"])
	assert.Equal(t, pgx.QueryExecModeCacheStatement, cc.DefaultQueryExecMode)
}
