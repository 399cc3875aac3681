package demokit

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestWhatADemoTellsIsWrappedAtWordsAndNoWordIsBroken(t *testing.T) {
	t.Parallel()
	text := strings.Repeat("eleven hooks wait for the agent's lock and none of them twice ", 4) +
		"http://127.0.0.1:46791/api/advisory-locks?" + strings.Repeat("q", 90) + " ends it"
	for _, width := range []int{40, 80, 132} {
		for _, colour := range []bool{false, true} {
			out := new(bytes.Buffer)
			n := &Narrator{out: out, began: time.Now(), colour: colour, width: func() int { return width }, ended: func() bool { return false }}
			n.title(text)
			n.scene(text)
			n.Say("%s, %s", n.Paint(Cyan, "a painted word"), text)
			n.Claim(true, "%s", text)
			n.Claim(false, "%s", text)
			n.Draw(text, "short   as  it is")
			words := make(map[string]bool)
			for word := range strings.FieldsSeq(text) {
				words[word] = true
			}
			for line := range strings.Lines(out.String()) {
				line = strings.TrimSuffix(line, "\n")
				if long := strings.Contains(line, "http://"); !long {
					assert.LessOrEqual(t, columns(line), width, line)
				} else {
					assert.Len(t, strings.Fields(line), 1, "alone on its line: %s", line)
				}
				if strings.HasPrefix(line, "          ") && !strings.Contains(line, "short") {
					for word := range strings.FieldsSeq(line) {
						assert.True(t, words[word], "%q is a part of a word in %q", word, line)
					}
				}
			}
			assert.Contains(t, out.String(), "          short   as  it is\n")
		}
	}
}

func TestWhatIsLiveIsDrawnOverItselfOrSaidOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := new(bytes.Buffer)
		n := &Narrator{out: out, began: time.Now(), colour: true, width: func() int { return 20 }}
		n.Live("short", "one", "two three four")
		n.Live("short", "five")
		n.Draw("six")
		n.Live("short", "seven")
		assert.Equal(t, "          one\n          two three\n          four\n"+
			"\x1b[3A\x1b[J          five\n          six\n          seven\n", out.String(), "what was printed stays")

		out.Reset()
		n.colour = false
		for range 25 {
			n.Live("short", "one")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, "  0.000s  short\n  1.000s  short\n  2.000s  short\n", out.String())
		out.Reset()
		n.Live("short", "one")
		assert.Empty(t, out.String())
	})
}

func TestWhatIsNoTerminalIs80ColumnsWide(t *testing.T) {
	t.Parallel()
	file, err := os.Create(t.TempDir() + "/out")
	require.NoError(t, err)
	defer file.Close()
	n := newNarrator(file, func() bool { return false })
	assert.Equal(t, 80, n.width())
}
