package lockcmd

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/monitor"
)

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
