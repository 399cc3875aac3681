package ratelimit

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/bubble"
)

func TestEachAddressHasARateOfItsOwnWhateverItsPort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(1, 2)
		assert.True(t, l.Allow("192.0.2.1:1"))
		assert.True(t, l.Allow("192.0.2.1:2"))
		assert.False(t, l.Allow("192.0.2.1:3"))
		assert.True(t, l.Allow("[2001:db8::1]:1"), "another address")
		bubble.Sleep(time.Second)
		assert.True(t, l.Allow("192.0.2.1:1"), "one a second")
		assert.False(t, l.Allow("192.0.2.1:1"))
	})
}

func TestAnAddressThatIsQuietForAMinuteIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := New(1e-6, 1)
		for i := range 100 {
			assert.True(t, l.Allow(fmt.Sprintf("192.0.2.%d:1", i)))
		}
		assert.False(t, l.Allow("192.0.2.0:1"))
		for range 3 {
			bubble.Sleep(forgetAfter / 2)
			assert.False(t, l.Allow("192.0.2.0:1"), "it is not quiet")
		}
		assert.Len(t, l.addresses, 1)
		bubble.Sleep(forgetAfter + 1)
		assert.True(t, l.Allow("192.0.2.1:1"))
		assert.True(t, l.Allow("192.0.2.0:1"))
	})
}

func TestWithoutALimiterAllIsAllowed(t *testing.T) {
	t.Parallel()
	assert.True(t, (*Limiter)(nil).Allow("192.0.2.1:1"))
}
