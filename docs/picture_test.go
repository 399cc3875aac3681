package docs_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// generator makes the pictures. It is no dependency: make pictures compiles it, which takes minutes, and a test only compares stamps.
const generator = "oss.terrastruct.com/d2@v0.7.2"

// embedded is a picture on a page: its text, and its file.
var embedded = regexp.MustCompile(`!\[([^\]]*)\]\(([^)\s]+)\)`)

// generatorFlags make one file for light and dark: the viewer's preference selects the colors.
var generatorFlags = []string{"--theme", "0", "--dark-theme", "200", "--pad", "20", "--no-xml-tag"}

// stamp is the last line of a picture. It names the source and the generator that it was made from. XML allows no "--" in a comment.
func stamp(source []byte) string {
	flags := strings.ReplaceAll(strings.Join(generatorFlags, " "), "--", "")
	return fmt.Sprintf("<!-- %s %s of %x -->\n", generator, flags, sha256.Sum256(source))
}

// wellFormed returns the error of a text that is no XML, which browsers do not show.
func wellFormed(text []byte) error {
	decoder := xml.NewDecoder(bytes.NewReader(text))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// isMadeFrom reports whether a picture has the stamp of a source.
func isMadeFrom(picture, source []byte) bool { return bytes.HasSuffix(picture, []byte(stamp(source))) }

func TestEveryPictureIsMadeFromItsSource(t *testing.T) {
	t.Parallel()
	sources, err := filepath.Glob("img/*.d2")
	require.NoError(t, err)
	require.NotEmpty(t, sources)
	for _, path := range sources {
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		target := strings.TrimSuffix(path, ".d2") + ".svg"
		picture, err := os.ReadFile(target)
		if !isMadeFrom(picture, source) && os.Getenv("PGLATCH_PICTURES") != "" {
			picture, err = draw(t, path, source, target)
		}
		require.NoError(t, err)
		assert.True(t, isMadeFrom(picture, source), "%s is not made from %s: make pictures", target, path)
		require.NoError(t, wellFormed(picture), target)
		assert.True(t, isShown(t, filepath.Base(target)), "no page shows %s", target)
	}
}

// draw makes a picture anew.
func draw(t *testing.T, path string, source []byte, target string) ([]byte, error) {
	t.Helper()
	scratch := filepath.Join(t.TempDir(), "picture.svg")
	output, err := exec.CommandContext(t.Context(), "go", append(append([]string{"run", generator}, generatorFlags...), path, scratch)...).CombinedOutput() //nolint:gosec // make pictures
	require.NoError(t, err, "%s", output)
	picture, err := os.ReadFile(scratch)
	require.NoError(t, err)
	picture = append(bytes.TrimSpace(picture), "\n"+stamp(source)...)
	return picture, os.WriteFile(target, picture, 0o644) //nolint:gosec // the mode that git uses
}

// isShown reports whether a page embeds a picture, with a text for people who do not see it.
func isShown(t *testing.T, name string) bool {
	t.Helper()
	for _, p := range pages(t) {
		for _, m := range embedded.FindAllStringSubmatch(p.text, -1) {
			if filepath.Base(m[2]) == name {
				return len(m[1]) > 20
			}
		}
	}
	return false
}

// The control: another source, and a picture without a stamp.
func TestAPictureOfAnotherSourceIsFound(t *testing.T) {
	t.Parallel()
	picture := []byte("<svg></svg>\n" + stamp([]byte("a -> b")))
	require.NoError(t, wellFormed(picture))
	require.Error(t, wellFormed([]byte("<svg></svg>\n<!-- d2 --theme 0 -->\n")))
	assert.True(t, isMadeFrom(picture, []byte("a -> b")))
	assert.False(t, isMadeFrom(picture, []byte("a -> c")))
	assert.False(t, isMadeFrom([]byte("<svg></svg>\n"), []byte("a -> b")))
}
