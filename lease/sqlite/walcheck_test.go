package sqlite_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestAStoreWhoseWALIsLostOrDamagedSaysSoOnceWhenItIsOpened(t *testing.T) {
	t.Parallel()
	left, _ := killed(t, sqlite.Open)
	wal := left["-wal"]
	require.Greater(t, len(wal), 32+3*(24+4096), "several frames")
	flipped := func(at int) []byte {
		text := bytes.Clone(wal)
		text[at] ^= 1
		return text
	}
	for problem, files := range map[string]files{
		"it is gone":            left.with("-wal", nil),
		"it is empty or cut":    left.with("-wal", []byte{}),
		"its header is damaged": left.with("-wal", flipped(17)),
		"frame 2 is damaged":    left.with("-wal", flipped(32+24+4096+24+100)),
		"":                      left, // the control: it was only killed
	} {
		path, log := newPath(t), new(bytes.Buffer)
		files.write(t, path)
		config := sqlite.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}
		s, err := sqlite.Open(t.Context(), path, config)
		require.NoError(t, err, problem)
		require.NoError(t, s.Close())
		if problem == "" {
			assert.Empty(t, log.String())
		} else {
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN msg=wal_damaged"), "%s: %s", problem, log)
			assert.Contains(t, log.String(), problem)
		}
		log.Reset()
		s, err = sqlite.Open(t.Context(), path, config) // which was closed: it has no WAL to miss
		require.NoError(t, err)
		require.NoError(t, s.Close())
		assert.Empty(t, log.String())
	}
}
