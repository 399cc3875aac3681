package browser_test

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/monitor"
)

func TestSeveralDatabasesAreOnOnePage(t *testing.T) {
	t.Parallel()
	prod, staging := pgtest.DSN(t), pgtest.DSN(t)
	holder, waiter := start(t, prod, "billing-1"), start(t, prod, "billing-2")
	holder.do("hold order/1 settle")
	waiter.do("wait order/1")
	start(t, staging, "billing-9").do("hold order/2")
	var monitors []*monitor.Monitor
	for name, dsn := range map[string]string{"prod": prod, "staging": staging, "gone": "postgres://nobody@127.0.0.1:1/shop?sslmode=disable"} {
		m, err := monitor.Open(monitor.Config{Name: name, DSN: dsn, LongHold: map[bool]time.Duration{true: time.Second}[name == "prod"], Record: time.Second})
		require.NoError(t, err)
		t.Cleanup(m.Close)
		monitors = append(monitors, m)
	}
	site, err := monitor.NewSite(monitors...)
	require.NoError(t, err)
	address := listen(t, site)
	b := browse(t)
	b.open(address)
	b.until("#live", "live, ")
	b.until("[aria-label=Databases] tr", "gone")
	b.until("[aria-label=Databases] tr.critical", "does not answer")
	b.until("[aria-label=Databases] tr.warning", "1 warning")
	b.until(".verdicts .card", "prod billing-1 has held order/1")
	b.accessible("databases")
	b.picture("databases")
	assert.NotContains(t, b.text(".verdicts"), "staging", "a neighbour hides nothing, and is not blamed")
	b.do(click(".verdicts .more a"))
	b.until("[data-part=key] h1", "order/1")
	b.until("[aria-label=Holders]", "settle")
	b.do(click(".brand a"))
	b.until("#live", "live, ")
	b.do(click("#d-staging"))
	b.until(".brand", "staging:")
	b.until("#rows", "order/2")
	assert.NotContains(t, b.text("#rows"), "order/1")
	b.do(chromedp.EmulateViewport(320, 640))
	b.open(address)
	b.accessible("databases-320")
	assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), int64(320))
	b.clean(address)
}
