package turnstile_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/turnstile"
	"github.com/pglatch/pglatch/namespace"
)

// Two versions that disagree would not share one queue during a deploy.
func TestTurnstilesAreThoseOfTheFrozenVectors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ tag, want namespace.Tag }{
		{namespace.Tag{ClassID: 0, ObjID: 0, ObjSubID: 2}, namespace.Tag{ClassID: 41955, ObjID: 1278876551, ObjSubID: 1}},
		{namespace.Tag{ClassID: 1, ObjID: 42, ObjSubID: 2}, namespace.Tag{ClassID: 129578, ObjID: 3737522219, ObjSubID: 1}},
		{namespace.Tag{ClassID: 4294967295, ObjID: 5, ObjSubID: 2}, namespace.Tag{ClassID: 2597, ObjID: 3416453798, ObjSubID: 1}},
		{namespace.Tag{ClassID: 32767, ObjID: 4294967295, ObjSubID: 2}, namespace.Tag{ClassID: 2147448446, ObjID: 4080542692, ObjSubID: 1}},
		{namespace.Tag{ClassID: 32768, ObjID: 7, ObjSubID: 2}, namespace.Tag{ClassID: 20554, ObjID: 2568584424, ObjSubID: 1}},
		{namespace.Tag{ClassID: 0, ObjID: 0, ObjSubID: 1}, namespace.Tag{ClassID: 56386, ObjID: 2619733621, ObjSubID: 1}},
		{namespace.Tag{ClassID: 0, ObjID: 12345, ObjSubID: 1}, namespace.Tag{ClassID: 15377, ObjID: 2020470157, ObjSubID: 1}},
		{namespace.Tag{ClassID: 4294967295, ObjID: 4294967295, ObjSubID: 1}, namespace.Tag{ClassID: 10173, ObjID: 1962601318, ObjSubID: 1}},
		{namespace.Tag{ClassID: 1073741824, ObjID: 0, ObjSubID: 1}, namespace.Tag{ClassID: 1073749163, ObjID: 2535202505, ObjSubID: 1}},
		{namespace.Tag{ClassID: 77072, ObjID: 1828218103, ObjSubID: 1}, namespace.Tag{ClassID: 120233, ObjID: 1444835648, ObjSubID: 1}},
	} {
		assert.Equal(t, c.want, turnstile.Of(c.tag), "%v", c.tag)
	}
}
