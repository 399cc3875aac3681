package demokit

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestWhatADemoTellsIsWrappedAtWordsAndNoWordIsBroken(t *testing.T) {
	t.Parallel()
	url := "http://127.0.0.1:46791/api/advisory-locks?" + strings.Repeat("q", 90)
	text := strings.Repeat("eleven hooks wait for the agent's lock and none of them twice ", 4) + url + " ends it"
	for _, colour := range []bool{false, true} {
		out := new(bytes.Buffer)
		d := &Demo{out: out, began: time.Now(), colour: colour, interrupted: func() bool { return false }}
		d.Say("%s, %s", d.Paint(Cyan, "a painted word"), text)
		d.Claim(true, "%s", text)
		d.Draw(Cyan, text, "short   as  it is")
		for line := range strings.Lines(out.String()) {
			line = strings.TrimSuffix(line, "\n")
			if strings.Contains(line, url) {
				assert.Len(t, strings.Fields(line), 1, "alone on its line: %s", line)
				continue
			}
			assert.LessOrEqual(t, columns(line), width, line)
		}
		assert.Equal(t, 3, strings.Count(out.String(), url))
		assert.Contains(t, out.String(), "short   as  it is")
	}
}

func TestWhatIsLiveIsDrawnOverItselfOrSaidOnceASecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := new(bytes.Buffer)
		d := &Demo{out: out, began: time.Now(), colour: true}
		long := strings.Repeat("x", 60)
		d.Live("short", "one", long+" two")
		d.Live("short", "one", long+" and two")
		d.Live("short", "five")
		d.Printf("six\n")
		d.Live("short", "seven")
		assert.Equal(t, "          one\n          "+long+" two\n\x1b[2A\x1b[J          one\n          "+long+" and two\n"+
			"\x1b[2A\x1b[J          five\nsix\n          seven\n", out.String(), "what was printed stays")
		out.Reset()
		d.colour = false
		for range 25 {
			d.Live("short", "one")
			time.Sleep(100 * time.Millisecond)
		}
		assert.Equal(t, "  0.000s  short\n  1.000s  short\n  2.000s  short\n", out.String())
	})
}

func TestATimelineHasARowForEachName(t *testing.T) {
	t.Parallel()
	out := new(bytes.Buffer)
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	(&Demo{out: out}).Timeline([]Span{{"b", at(100), at(200)}, {"long", at(0), at(50)}, {"b", at(500), time.Time{}}, {"kill", at(599), at(600)}})
	assert.Equal(t, "          b    ··········███████████·····························██████████\n"+
		"          kill ···························································█\n"+
		"          long ██████······················································\n"+
		"               0"+strings.Repeat(" ", 53)+"600 ms\n", out.String())
}
