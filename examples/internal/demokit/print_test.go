package demokit

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestATimelineHasARowForEachName(t *testing.T) {
	t.Parallel()
	out := new(bytes.Buffer)
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	(&Demo{out: out}).Timeline([]Span{{"b", at(100), at(200)}, {"long", at(0), at(50)}, {"b", at(500), at(600)}, {"kill", at(599), at(600)}})
	assert.Equal(t, "          b    ··········███████████·····························██████████\n"+
		"          kill ···························································█\n"+
		"          long ██████······················································\n"+
		"               0"+strings.Repeat(" ", 53)+"600 ms\n", out.String())
}
