package turns_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A standby that lacks the last claims of the old primary, and the last numbers of its sequence, makes these claims again.
func TestAClaimAfterAPromotionHasAnotherTokenThanTheOneThatWasLost(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"another token": false, "control: without the random part": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			if control {
				without(t, b.pool, map[string]string{" * 1048576 + floor(random() * 1048576)::bigint": ""})
			}
			b.send(t, "a", "1")
			claim := func(node string) int64 {
				exec(t, b.pool, "SELECT setval('pglatch_turns.token', 41)")
				exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'ready'")
				return one[int64](t, b.pool, "SELECT token FROM pglatch_turns.claim('chat', $1, 1, '0')", node)
			}
			assert.Equal(t, control, claim("old") == claim("new"))
		})
	}
}

func TestTokensRise(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.send(t, "a", "1")
	last := int64(0)
	for range 20 {
		token := one[int64](t, b.pool, "SELECT token FROM pglatch_turns.claim('chat', 'node', 1, '0')")
		assert.Greater(t, token, last)
		last = token
		exec(t, b.pool, "UPDATE pglatch_turns.entities SET state = 'ready'")
	}
}
