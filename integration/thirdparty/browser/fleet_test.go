package browser_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/monitor"
	tabled "github.com/pglatch/pglatch/monitor/fleet"
)

// hostile is a name that is markup, turns what follows round, and is long.
const hostile = "<img src=x onerror=document.title='pwned'>\u202eשלום "

// tables are what a database has beside locks, with hostile names.
func tables(now time.Time) tabled.Fleet {
	long := hostile + strings.Repeat("x", 300)
	return tabled.Fleet{
		Groups: []tabled.Group{{
			Name: "tenant=7", Shards: 1234, Owned: 1232, Moves: 3,
			Nodes: []tabled.Node{{Identity: "web-1", Weight: 1, Owned: 1200, Fair: 600}, {Identity: long, Weight: 1, Owned: 32, Fair: 0, Drained: true}, {Identity: "web-9", Away: true, Drained: true}},
			List:  []tabled.Shard{{Name: "acme", Owner: "web-1", Term: "1-7"}, {Name: hostile, Pin: "web-1"}},
		}},
		Jobs: []tabled.Job{
			{Name: "report", Every: time.Minute, Next: now.Add(time.Minute), Last: tabled.Run{Tick: now, State: "RUNNING", Node: "web-1", Began: now}},
			{Name: hostile, Every: time.Hour, Next: now, Missed: []time.Time{now.Add(-time.Hour)}, Last: tabled.Run{Tick: now.Add(-2 * time.Hour), State: "FAILED", Node: long}},
		},
		Mailboxes: []tabled.Mailbox{{
			Name: "chat", Namespace: "conversation=8", Messages: 20000, Ready: 7, Running: 1, Stopped: 1, Dead: 2, Oldest: 90 * time.Second, Nodes: []string{"chat-1", hostile},
			Turns: []tabled.Turn{{Entity: hostile, Node: "chat-1", Attempt: 2, Age: time.Minute}},
		}},
		Leases:   []tabled.Lease{{Name: long, State: "HELD", Holder: hostile, Token: 42, Acquired: now, Left: time.Minute}},
		Problems: []string{"the monitor's role may not read the tables of ticks"},
	}
}

func TestShardsTicksTurnsAndLeasesAreOnThePage(t *testing.T) {
	t.Parallel()
	dsn := pgtest.DSN(t)
	var away atomic.Bool
	address := serve(t, monitor.Config{DSN: dsn, Fleet: func(context.Context) (tabled.Fleet, error) {
		if away.Load() {
			return tabled.Fleet{}, errors.New("away")
		}
		return tables(time.Now()), nil
	}})
	b := browse(t)
	b.open(address)
	b.until("#live", "live, ")
	b.do(press("5"))
	b.until("[data-part=fleet]", "Nobody owns 2 shards")
	for _, want := range []string{"1,232 of 1,234 owned, 3 moves in the last minute, 1 pin", "draining", "drained", "<img src=x", "nobody", "20,000", "the oldest for 1 min 30 s", "may not read the tables of ticks", "conversation=8"} {
		b.until("[data-part=fleet]", want)
	}
	assert.Contains(t, b.text("[aria-label=Ticks] tbody tr.warning"), "1, the last")
	assert.Contains(t, b.text("[aria-label=Ticks] tbody tr:last-child"), "running for")
	assert.NotContains(t, b.text("main"), "\u202e")
	assert.False(t, eval[bool](b, "!!document.querySelector('main img')"))
	assert.Zero(t, eval[int](b, "[...document.querySelectorAll('main tbody th')].filter(e => e.innerText.includes('<img') && !e.querySelector('bdi')).length"), "names do not turn what is beside them")
	b.until("#live", "live, ")
	b.do(chromedp.SendKeys("#find", "acme", chromedp.ByQuery))
	b.untilTrue("location.search.includes('find=acme') && document.querySelectorAll('[aria-label=\"Shards of tenant=7\"] tbody tr').length === 1")
	away.Store(true)
	for _, width := range []int64{320, 1280, 3840} {
		b.do(chromedp.EmulateViewport(width, 900))
		b.open(address + "fleet")
		b.until("[data-part=fleet]", "Nobody owns 2 shards")
		b.accessible("fleet")
		b.picture("fleet-" + map[int64]string{320: "320", 1280: "1280", 3840: "3840"}[width])
		assert.LessOrEqual(t, eval[int64](b, "document.documentElement.scrollWidth"), width)
	}
	b.clean(address)
	require.NotContains(t, eval[string](b, "document.title"), "pwned")
}

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
