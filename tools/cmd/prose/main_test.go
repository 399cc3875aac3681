package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const long = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty " +
	"twenty-one twenty-two twenty-three twenty-four twenty-five twenty-six twenty-seven twenty-eight twenty-nine thirty thirty-one."

func check(t *testing.T, name, text string) (why []string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	found, err := run([]string{dir})
	require.NoError(t, err)
	for _, f := range found {
		why = append(why, f.why)
	}
	return why
}

func TestALongSentenceAndAConstructionAreFound(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []string{"31 words, at most 30"}, check(t, "a.md", "# A page\n\n"+long+"\n"))
	assert.Equal(t, []string{"31 words, at most 30"}, check(t, "a.md", "- An item.\n- "+strings.Replace(long, " ten ", " ten\n  ", 1)+"\n"))
	assert.Equal(t, []string{"31 words, at most 30"}, check(t, "a.go", "// Package a is short. "+long+"\npackage a\n"))
	assert.Equal(t, []string{`name the subject: "A process that"`}, check(t, "a.md", "Who waits gets the lock.\n"))
	for sentence, why := range map[string]string{
		"The holder is told of it.":     `write "receives", "learns" or "is notified"`,
		"It hangs for ever.":            `write "forever", or say what ends it`,
		"The row stays as it is.":       "say what stays unchanged",
		"It is none of the errors.":     "say what it is",
		"Nothing speaks against a try.": `say it without "no"`,
	} {
		assert.Equal(t, []string{why}, check(t, "a.go", "package a\n\n// F is one. "+sentence+"\nfunc F() {}\n"))
		assert.Equal(t, []string{why}, check(t, "a.go", "package a\n\ntype T struct {\n\t// F is one. "+sentence+"\n\tF int\n}\n"))
	}
}

func TestWhatIsNoProseIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"code.md":   "    " + long + "\n\n```\n" + long + "\n```\n",
		"table.md":  "| " + long + " |\n",
		"title.md":  "# " + long + "\n",
		"short.md":  strings.Replace(long, " ten ", " ten. ", 1) + "\n\n" + "`" + long + "` is code. Who waits?\n",
		"a.go":      "// Package a is short.\n//\n//\t" + long + "\npackage a\n\n// " + long + "\nfunc internal() {}\n",
		"a_test.go": "// Package a is short. " + long + "\npackage a\n",
	} {
		assert.Empty(t, check(t, name, text), name)
	}
}

func TestAFileThatCannotBeReadIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.go"), []byte("no go"), 0o600))
	_, err := run([]string{dir})
	require.ErrorContains(t, err, "a.go")
}

func TestADrawIsOfWholeSentencesAndCanBeRepeated(t *testing.T) {
	t.Parallel()
	all := []finding{}
	for _, sentence := range (paragraph{text: "The first one is `a.b` here. The second, with\n[a link](x.md), ends! Too short.\n"}).sentences() {
		all = append(all, finding{sentence: sentence})
	}
	require.Len(t, all, 2)
	assert.Equal(t, "The second, with [a link](x.md), ends!", all[1].sentence)
	again := append([]finding{}, all...)
	assert.Equal(t, drawn(all, 5, 7), drawn(again, 5, 7))
	assert.Len(t, drawn(all, 1, 7), 1)
}
