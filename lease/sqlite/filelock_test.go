package sqlite_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// childTry tells a child to open the file and say whether it could.
const childTry = "PGLATCH_SQLITE_TRY"

// elsewhere opens a file in another process, which says what came of it.
func elsewhere(t *testing.T, path string) string {
	t.Helper()
	p := proctest.Start(t, proctest.Self(t, childTry+"="+path))
	require.Zero(t, p.Wait())
	return p.Stdout.String()
}

func TestAFileThatHasASecondNameHasOneStore(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	s := open(t, path, sqlite.Config{})
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Link(path, link))
	require.Contains(t, elsewhere(t, link), sqlite.ErrInUse.Error())
	for range 3 {
		refused(t, link, sqlite.ErrInUse)
	}
	acquire(t, s, "job")
	require.NoError(t, s.Close())
	require.Equal(t, "opened\n", elsewhere(t, link), "the control: it can be opened now")
	require.NoError(t, open(t, link, sqlite.Config{}).Close())
}
