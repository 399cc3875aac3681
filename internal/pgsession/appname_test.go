package pgsession

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
)

func TestTheNameOfAProcessIsItsProgramAndItsHost(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ program, host, want string }{
		{"/usr/local/bin/billing", "web-3", "billing@web-3"},
		{"./billing.exe", "web-3", "billing@web-3"},
		{"billing", "", "billing"},
		{"", "web-3", "pglatch@web-3"},
		{"/opt/rechnung-ß", "web-3", "rechnung-??@web-3"},
		{"billing", strings.Repeat("x", 80) + "-7d9f8b6c5-x2x4z", "billing@" + strings.Repeat("x", 20) + "..." + strings.Repeat("x", 16) + "-7d9f8b6c5-x2x4z"},
	} {
		got := processName(row.program, row.host)
		assert.Equal(t, row.want, got)
		assert.LessOrEqual(t, len(got), 63)
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	assert.Equal(t, ApplicationName(filepath.Base(os.Args[0])+"@"+host), ProcessName())
}

func TestPostgreSQLShowsANameAsItIsWritten(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.DSN(t))
	for _, name := range []string{ProcessName(), processName("/opt/rechnung-ß", strings.Repeat("host", 30))} {
		assert.Equal(t, []string{name}, conn.exec("SELECT set_config('application_name', '"+name+"', false)"))
	}
}
