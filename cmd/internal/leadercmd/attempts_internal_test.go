package leadercmd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/leader"
)

// A day of a follower is 43,200 attempts.
func TestAFollowersAttemptsAreLoggedOnceAfterEachOtherTransition(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	var a attemptLog
	day := func() {
		for range 43_200 {
			a.transition(log, leader.Follower, leader.Acquiring)
			a.transition(log, leader.Acquiring, leader.Follower)
		}
	}
	lines := func() int { return strings.Count(out.String(), "\n") }
	a.transition(log, leader.Stopped, leader.Follower)
	day()
	assert.Equal(t, 2, lines(), "%.1000s", out.String())
	day()
	assert.Equal(t, 2, lines())
	a.transition(log, leader.Follower, leader.Acquiring)
	a.transition(log, leader.Acquiring, leader.Leader)
	a.transition(log, leader.Leader, leader.Follower)
	day()
	assert.Equal(t, 4, lines(), "it has led meanwhile")

	debug := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out.Reset()
	new(attemptLog).transition(debug, leader.Follower, leader.Acquiring)
	assert.Empty(t, out.String(), "the Elector logs it")
}
