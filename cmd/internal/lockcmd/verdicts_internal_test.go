package lockcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/monitor/fleet"
)

func TestAVerdictOutweighsTablesThatWereNotRead(t *testing.T) {
	t.Parallel()
	view := func(problems ...string) lookup.View {
		return lookup.View{Snapshot: monitor.Snapshot{Fleet: &fleet.Fleet{Problems: problems}}}
	}
	denied, late := "the monitor's role may not read the tables of turns: GRANT SELECT on them, and USAGE on their schema, shows them", "the tables of ticks did not answer in time"
	for _, c := range []struct {
		view lookup.View
		want int
	}{{view(), 0}, {view(late), 69}, {view(late, denied), 77}, {lookup.View{}, 69}} {
		assert.Equal(t, c.want, program.Code((&judge{exitCode: true}).code(false, c.view.Unknown())), "%v", c.view.Unread())
		assert.Equal(t, 3, program.Code((&judge{exitCode: true}).code(true, c.view.Unknown())), "%v", c.view.Unread())
		assert.Zero(t, program.Code((&judge{}).code(true, c.view.Unknown())), "control: without --exit-code")
	}
}

func TestAVerdictThatIsFoldedHasNotEnded(t *testing.T) {
	t.Parallel()
	long := monitor.Verdict{Name: "held-long", Key: "order/7", Severity: "warning"}
	grows := monitor.Verdict{Name: "queue-grows", Key: "order/7", Severity: "warning"}
	deadlock := monitor.Verdict{Name: "deadlock", Key: "order/7", Severity: "critical", Folded: []monitor.Verdict{long, grows}}
	var open []monitor.Verdict
	for _, look := range []struct {
		now  []monitor.Verdict
		want []string
	}{
		{[]monitor.Verdict{long}, []string{"raised held-long"}},
		{[]monitor.Verdict{deadlock}, []string{"raised deadlock"}},
		{[]monitor.Verdict{deadlock}, nil},
		{[]monitor.Verdict{long, grows}, []string{"ended deadlock", "raised queue-grows"}}, // queue-grows had not been printed before
		{[]monitor.Verdict{deadlock}, []string{"raised deadlock"}},
		{nil, []string{"ended held-long", "ended queue-grows", "ended deadlock"}}, // the control: both are over
		{nil, nil},
	} {
		var changed []verdictChange
		changed, open = verdictChanges(time.Time{}, open, look.now)
		var got []string
		for _, c := range changed {
			got = append(got, c.Change+" "+c.Verdict.Name)
		}
		assert.Equal(t, look.want, got)
	}
}
