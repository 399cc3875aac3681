package browser_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
)

// Names are text in what a verdict, its link, a sorted table and a button to copy make of them.
func TestAHostileKeyIsTextInLinksOrdersAndCopies(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	locker, err := advisory.Open(t.Context(), advisory.Config{DSN: dsn, ApplicationName: "billing-1", Wait: advisory.NoTimeout, Answer: introspect.Config{Service: "billing"}})
	require.NoError(t, err)
	t.Cleanup(locker.Close)
	markup, quoted := "</script><img src=x onerror=document.title='pwned'>", "it's; pglatch terminate 1."
	names := []string{markup, quoted, "a\u202egnp\nb", strings.Repeat("y", 8<<10)}
	for _, name := range names {
		key, err := orders.Text(name)
		require.NoError(t, err)
		lock, err := locker.With(advisory.Options{Label: name}).Acquire(t.Context(), key)
		require.NoError(t, err)
		t.Cleanup(func() { _ = lock.Release() })
	}
	const lock = "SELECT pg_advisory_lock(77, 1)"
	psql, other := pgtest.Connect(t, dsn), pgtest.Connect(t, dsn)
	_, err = psql.Exec(t.Context(), lock)
	require.NoError(t, err)
	ctx, leave := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, err := other.Exec(ctx, lock)
		assert.Error(t, err)
	})
	waiting.Go(func() {
		key, err := orders.Text(markup)
		if err == nil {
			_, err = locker.Acquire(ctx, key)
		}
		assert.ErrorIs(t, err, context.Canceled)
	})
	t.Cleanup(func() { leave(); waiting.Wait() })
	address := serve(t, monitor.Config{DSN: dsn, LongHold: time.Second})
	b := browse(t)
	b.open(address)
	b.until(".verdicts .card.warning", "has held order/"+markup)
	b.until(".verdicts .card", "3 keys are held for more than")
	whole := func(what string) {
		t.Helper()
		assert.NotContains(t, b.text("body"), "\u202e", what)
		assert.Equal(t, 0, eval[int](b, "document.querySelectorAll('img').length"), what)
		assert.LessOrEqual(t, eval[int](b, "document.documentElement.scrollWidth"), eval[int](b, "innerWidth"), what)
		assert.NotEqual(t, "pwned", eval[string](b, "document.title"), what)
	}
	whole("now")
	const copying = "navigator.clipboard.writeText = async (text) => { window.copied = text }, true"
	eval[bool](b, copying)
	b.until(".card .command", fmt.Sprint("pglatch terminate ", psql.PgConn().PID()))
	b.do(click(".card .command .copier"))
	b.untilTrue(fmt.Sprintf("window.copied === 'pglatch terminate %d'", psql.PgConn().PID()))
	links := eval[[]string](b, "[...document.querySelectorAll('[id$=-incident]')].map(e => e.href)")
	require.GreaterOrEqual(t, len(links), 3)
	keys := eval[[]string](b, "[...document.querySelectorAll('#rows a')].map(e => e.href)")
	require.Len(t, keys, len(names)+1)
	for _, link := range links {
		b.open(link)
		b.until("[data-part=incident] .card", " held ")
		whole(link)
	}
	b.open(address + "?sort=key&find=order/a")
	b.until("#live", "live, ")
	b.until("#rows", "order/a?gnp?b")
	whole("sorted")
	commands := ""
	for _, link := range keys {
		b.open(link)
		b.until("#live", "live, ")
		whole(link)
		eval[bool](b, copying)
		b.do(click(".steps .copier"))
		b.untilTrue("window.copied === document.querySelector('.steps code').textContent")
		commands += eval[string](b, "copied + '|' + document.querySelector('h1.key').dataset.key + '\\n'")
	}
	assert.Contains(t, commands, `pglatch ask 'order/it'\''s; pglatch terminate 1.'|order/`+quoted+"\n", "a command takes the key as it is")
	assert.Regexp(t, `(?m)^pglatch ask @\d+\|@\d+$`, commands, "and another name of it, if the page cannot show it")
	b.do(chromedp.EmulateViewport(390, 844))
	b.open(address + "graph")
	b.until("[data-part=graph]", "order/"+markup[:8])
	whole("graph")
	b.clean(address)
}
