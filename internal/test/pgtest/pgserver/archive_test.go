package pgserver

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// archiveOf returns an npm archive with executable files, given as names and contents in turn.
func archiveOf(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipper := gzip.NewWriter(&b)
	w := tar.NewWriter(zipper)
	for i := 0; i < len(files); i += 2 {
		require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o700, Size: int64(len(files[i+1]))}))
		_, err := w.Write([]byte(files[i+1]))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	require.NoError(t, zipper.Close())
	return b.Bytes()
}

func TestUnpackWritesTheNativeFolderAndItsLinks(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "native")
	require.NoError(t, unpack(archiveOf(t,
		"package/package.json", "{}",
		"package/native/lib/libpq.so.5.16", "library",
		"package/native/pg-symlinks.json", `[{"source": "native/lib/libpq.so.5.16", "target": "native/lib/libpq.so.5"}]`,
	), dir))
	text, err := os.ReadFile(filepath.Join(dir, "lib", "libpq.so.5"))
	require.NoError(t, err)
	assert.Equal(t, "library", string(text))
	assert.NoFileExists(t, filepath.Join(dir, "package.json"))

	info, err := os.Stat(filepath.Join(dir, "lib", "libpq.so.5.16"))
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o755), info.Mode().Perm(), "another user can run it")
}

func TestUnpackWritesNothingOutsideItsFolder(t *testing.T) {
	t.Parallel()
	for name, archive := range map[string][]byte{
		"file":          archiveOf(t, "package/native/../../escaped", "x"),
		"absolute file": archiveOf(t, "package/native//escaped", "x"),
		"link":          archiveOf(t, "package/native/pg-symlinks.json", `[{"source": "native/a", "target": "native/../../a"}]`),
		"not a gzip":    []byte("text"),
	} {
		parent := t.TempDir()
		require.Error(t, unpack(archive, filepath.Join(parent, "native")), name)
		entries, err := os.ReadDir(parent)
		require.NoError(t, err)
		assert.Len(t, entries, 1, name)
	}
}
