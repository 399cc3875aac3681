package leaseserver

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// A server that begins to listen hears the others before itself.
func TestMessagesMayComeInAnyOrderAndInPieces(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"leave other 1 x", "wait other 1 x", "free other 1 x", "alive other", "hello other", "leave", "wait  ", "", "nonsense other 1 x"} {
		p := newPeers(&Config{}, newQueue(&Config{}, nil))
		p.receive(first)
		for _, message := range []string{"hello " + p.id, "hello other", "wait other 1 x", "wait other 2 x", "leave other 1 x", "leave other 1 x", "leave other 7 y"} {
			p.receive(message)
		}
		assert.Equal(t, map[string][]place{"x": {{"other", "2"}}}, p.lines, first)
		assert.Equal(t, 1, p.waiting, first)
	}
}
