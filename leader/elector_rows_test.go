package leader_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader"
)

var (
	reacquires = leader.Config{}
	leadsOnce  = leader.Config{LeadOnce: true}
	isDamped   = leader.Config{ReconnectGrace: 10 * time.Second}
)

// Each case plays one row of the machine's table, or a few, from Start to the end.
func TestTheElectorFollowsItsTable(t *testing.T) {
	t.Parallel()
	wait := func(d time.Duration) func(*scene) { return func(s *scene) { s.at(d) } }
	stepDown := func(s *scene) {
		synctest.Wait()
		require.NoError(s.t, s.StepDown(s.t.Context()))
	}
	for _, c := range []struct {
		name   string
		config leader.Config
		calls  []call
		play   func(s *scene) // before Shutdown
		want   []string       // until then
		after  []string       // after it; "" = the node had stopped of itself
	}{
		{
			name: "a leader renews and a stop releases", config: reacquires,
			calls: []call{acquires(1), renews(), renews(), releases(), closes()}, play: wait(11 * time.Second),
			want:  []string{"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1"},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.1", "stopped"},
		},
		{
			name: "an attempt that is refused backs off, and a stop ends a follower", config: reacquires,
			calls: []call{refuses(), refuses(), releases(), closes()}, play: wait(3 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→follower", "refused",
				"follower→acquiring", "acquiring→follower", "refused",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "an attempt that fails cycles the backend and backs off", config: reacquires,
			calls: []call{fails(), releases(), closes(), acquires(1), releases(), closes()}, play: wait(2 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→follower", "attempt failed", "error",
				"follower→acquiring", "acquiring→leader", "acquired 1.1",
			},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.1", "stopped"},
		},
		{
			name: "an attempt that fails ends a node that does not reacquire", config: leadsOnce,
			calls: []call{fails(), releases(), closes(), closes()}, play: wait(0),
			want: []string{"stopped→follower", "follower→acquiring", "acquiring→stopped", "attempt failed", "error", "gave up"},
		},
		{
			name: "a stop ends an attempt under way", config: reacquires,
			calls: []call{hangs(refuses()), releases(), closes()}, play: wait(time.Second),
			want:  []string{"stopped→follower", "follower→acquiring"},
			after: []string{"acquiring→stopped", "stopped"},
		},
		{
			name: "an attempt that is half done goes on", config: reacquires,
			calls: []call{pends(), pends(), acquires(1), releases(), closes()}, play: wait(0),
			want:  []string{"stopped→follower", "follower→acquiring", "attempt failed", "attempt failed", "acquiring→leader", "acquired 1.1"},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.1", "stopped"},
		},
		{
			name: "a failed renewal is tolerated", config: reacquires,
			calls: []call{acquires(1), failsToRenew(), renews(), renews(), releases(), closes()}, play: wait(12 * time.Second),
			want:  []string{"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "error"},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.1", "stopped"},
		},
		{
			name: "a loss is reported, and the node tries again at once", config: reacquires,
			calls: []call{acquires(1), losesLeadership(), closes(), refuses(), releases(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→follower", "lost 1.1", "error", "follower→acquiring", "acquiring→follower", "refused",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "a loss ends a node that does not reacquire", config: leadsOnce,
			calls: []call{acquires(1), losesLeadership(), closes(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→stopped", "lost 1.1", "error", "gave up",
			},
		},
		{
			name: "a recovery is reported as such", config: isDamped,
			calls: []call{acquires(1), losesLeadership(), closes(), acquires(2), releases(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→reconnecting", "error", "reconnecting→leader", "recovered 1.2",
			},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.2", "stopped"},
		},
		{
			name: "somebody else led meanwhile", config: isDamped,
			calls: []call{acquires(1), losesLeadership(), closes(), acquires(3), releases(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error",
				"reconnecting→acquiring", "lost 1.1", "acquiring→leader", "acquired 1.3",
			},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.3", "stopped"},
		},
		{
			name: "somebody else led meanwhile, and the node does not reacquire", config: leader.Config{ReconnectGrace: time.Second, LeadOnce: true},
			calls: []call{acquires(1), losesLeadership(), closes(), acquires(3), releases(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error",
				"reconnecting→stopped", "lost 1.1", "gave up",
			},
		},
		{
			name: "somebody else leads by now", config: isDamped,
			calls: []call{acquires(1), losesLeadership(), closes(), refuses(), releases(), closes()}, play: wait(5 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error",
				"reconnecting→follower", "lost 1.1",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "attempts to recover fail until the grace ends", config: leader.Config{ReconnectGrace: 3 * time.Second},
			calls: []call{
				acquires(1), losesLeadership(), closes(), fails(), releases(), closes(), fails(), releases(), closes(),
				releases(), closes(), // the grace ends
				releases(), closes(),
			},
			play: wait(8 * time.Second),
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error",
				"error", "error", "reconnecting→follower", "lost 1.1",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "a stop ends a recovery", config: isDamped,
			calls: []call{acquires(1), losesLeadership(), closes(), hangs(refuses()), releases(), closes()}, play: wait(6 * time.Second),
			want:  []string{"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error"},
			after: []string{"reconnecting→stopped", "lost 1.1", "stopped"},
		},
		{
			name: "a step-down ends a recovery", config: isDamped,
			calls: []call{acquires(1), losesLeadership(), closes(), hangs(refuses()), releases(), releases(), closes()},
			play: func(s *scene) {
				s.at(6 * time.Second)
				stepDown(s)
			},
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1", "leader→reconnecting", "error",
				"reconnecting→follower", "lost 1.1",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "a step-down releases and the node takes part again", config: reacquires,
			calls: []call{acquires(1), releases(), acquires(3), releases(), closes()},
			play: func(s *scene) {
				stepDown(s)
				s.at(2 * time.Second)
			},
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→releasing", "releasing→follower", "released 1.1", "follower→acquiring", "acquiring→leader", "acquired 1.3",
			},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.3", "stopped"},
		},
		{
			name: "a step-down ends a node that does not reacquire", config: leadsOnce,
			calls: []call{acquires(1), releases(), closes()}, play: stepDown,
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→releasing", "releasing→stopped", "released 1.1", "stopped",
			},
		},
		{
			name: "a step-down whose release fails cycles the backend and the node takes part again", config: reacquires,
			calls: []call{acquires(1), failsToRelease(), closes(), refuses(), releases(), closes()},
			play: func(s *scene) {
				stepDown(s)
				s.at(2 * time.Second)
			},
			want: []string{
				"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1",
				"leader→releasing", "releasing→follower", "released 1.1", "error", "follower→acquiring", "acquiring→follower", "refused",
			},
			after: []string{"follower→stopped", "stopped"},
		},
		{
			name: "a stop whose release fails is still a clean stop", config: reacquires,
			calls: []call{acquires(1), failsToRelease(), closes(), closes()}, play: wait(0),
			want:  []string{"stopped→follower", "follower→acquiring", "acquiring→leader", "acquired 1.1"},
			after: []string{"leader→releasing", "releasing→stopped", "released 1.1", "error", "stopped"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := launch(t, c.config, c.calls...)
				c.play(s)
				assert.Equal(t, c.want, s.heard())
				s.finish()
				assert.Equal(t, c.after, s.heard())
			})
		})
	}
}
