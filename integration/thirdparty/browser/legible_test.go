package browser_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
)

func TestALabelOf3000BytesDoesNotFillThePageNorTurnItsWords(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	start(t, dsn, "billing-1").do("hold order/7 %s", strings.Repeat("x", 1500)+"\u202e"+strings.Repeat("y", 1500))
	start(t, dsn, "billing-2").do("hold order/8 a\u202etxt")
	address := serve(t, monitor.Config{DSN: dsn})
	b := browse(t)
	b.open(address)
	b.until("#rows", "order/7")
	b.until("#rows", "a?txt")
	b.until("#rows", "xxx…") // it is cut
	assert.Less(t, eval[int](b, "document.documentElement.scrollHeight"), 1500)
	assert.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), eval[int](b, "window.innerWidth"))
	b.clean(address)
}
