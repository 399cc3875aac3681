//go:build integration

package turns

import (
	"context"
	"errors"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/internal/pause"
	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/dbtest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/internal/test/pgtest/service"
	"github.com/pglatch/pglatch/turns"
)

// watched notes, by the server's clock, when entities are ready and when nodes serve. A deferred trigger runs as a part of
// the commit, so a message's time is not that of a Send whose transaction went on.
const watched = `
	CREATE TABLE noted (at timestamptz DEFAULT clock_timestamp(), what text, who text, node text DEFAULT '');
	CREATE TABLE pulses (at timestamptz DEFAULT clock_timestamp(), name text);
	CREATE FUNCTION note_entity() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		IF TG_OP = 'DELETE' THEN
			INSERT INTO public.noted (what, who) VALUES ('gone', OLD.entity);
		ELSIF NEW.state = 'ready' THEN
			INSERT INTO public.noted (at, what, who) VALUES (greatest(clock_timestamp(), NEW.ready_at), 'ready', NEW.entity);
		ELSE
			INSERT INTO public.noted (what, who, node) VALUES ('running', NEW.entity, NEW.node);
		END IF;
		RETURN NULL;
	END $$;
	CREATE FUNCTION note_node() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
	BEGIN
		INSERT INTO public.noted (what, who) VALUES (CASE TG_OP WHEN 'DELETE' THEN 'left' ELSE 'joined' END, CASE TG_OP WHEN 'DELETE' THEN OLD.node ELSE NEW.node END);
		RETURN NULL;
	END $$;
	CREATE CONSTRAINT TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON pglatch_turns.entities DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_entity();
	CREATE CONSTRAINT TRIGGER note AFTER INSERT OR DELETE ON pglatch_turns.nodes DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note_node()`

const (
	pulseEvery = 50 * time.Millisecond
	// steady is the longest time between two pulses in which a process and its server provably were at work. A machine
	// that is too busy makes it longer, and then nothing is said about the time between.
	steady = 120 * time.Millisecond
	// longest is the promise: how long an entity waits at most while a worker is free.
	longest = ttl + 2*time.Second
)

// pulse proves, until ctx ends, that the process runs, and that the server answers it.
func (n node) pulse(ctx context.Context, pool *pgxpool.Pool) {
	for pause.For(ctx, pulseEvery) == nil {
		_, _ = pool.Exec(ctx, "INSERT INTO pulses (name) VALUES ($1)", n.Name)
	}
}

// A span is a time, by the server's clock.
type span struct{ from, to time.Time }

// A note is an event of an entity or of a node.
type note struct {
	At              time.Time
	What, Who, Node string
}

// notes reads the events in order: those of the triggers, the turns that began, and the faults.
func (b *bench) notes(t *testing.T) []note {
	t.Helper()
	return rows[note](t, b, `SELECT at, what, who, node FROM noted UNION ALL SELECT at, 'begun', entity, '' FROM begun
		UNION ALL SELECT at, what, who, '' FROM faults ORDER BY at`)
}

// A wait is the time from when an entity was ready, or from when the node of its turn was struck, until its next turn began.
type wait struct {
	span
	entity string
}

// waits reads them from the events until now. A turn that is given back ends no wait: it has not begun.
func waits(notes []note, now time.Time) (all []wait) {
	since, on := map[string]time.Time{}, map[string]string{}
	for _, n := range notes {
		from, waiting := since[n.Who]
		switch n.What {
		case "ready":
			delete(on, n.Who)
			if !waiting {
				since[n.Who] = n.At
			}
		case "running":
			on[n.Who] = nameOf(n.Node)
		case "begun", "gone":
			if waiting && n.At.After(from) {
				all = append(all, wait{span{from, n.At}, n.Who})
			}
			delete(since, n.Who)
			if n.What == "gone" {
				delete(on, n.Who)
			}
		case "struck":
			for entity, node := range on {
				if _, waiting := since[entity]; node == n.Who && !waiting {
					since[entity] = n.At
				}
			}
		}
	}
	for entity, from := range since { // those that still wait
		if now.After(from) {
			all = append(all, wait{span{from, now}, entity})
		}
	}
	return all
}

// nameOf returns the name of the process of a node. Serve adds a random part to it.
func nameOf(node string) string { return strings.Split(node, "/")[0] }

// free returns when a node served, and had a free worker: always, as it has a worker for each entity. A node that is
// struck counts again when it has joined under another name.
func free(notes []note, pulses map[string][]time.Time) (all []span) {
	joined := map[string]note{}
	end := func(name string, at time.Time) {
		from, ok := joined[name]
		delete(joined, name)
		for i, beats := 1, pulses[name]; ok && i < len(beats); i++ {
			if s := (span{beats[i-1], beats[i]}); !s.from.Before(from.At) && !s.to.After(at) && s.to.Sub(s.from) <= steady {
				all = append(all, s)
			}
		}
	}
	for _, n := range notes {
		switch n.What {
		case "joined":
			end(nameOf(n.Who), n.At)
			joined[nameOf(n.Who)] = n
		case "left":
			if joined[nameOf(n.Who)].Who == n.Who {
				end(nameOf(n.Who), n.At)
			}
		case "strikes":
			end(n.Who, n.At)
		}
	}
	for name, beats := range pulses {
		end(name, beats[len(beats)-1])
	}
	return merged(all)
}

// merged joins spans that overlap.
func merged(spans []span) (all []span) {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	for _, s := range spans {
		if n := len(all); n > 0 && !s.from.After(all[n-1].to) {
			if s.to.After(all[n-1].to) {
				all[n-1].to = s.to
			}
			continue
		}
		all = append(all, s)
	}
	return all
}

// counted returns for how much of a wait a worker was free.
func (w wait) counted(free []span) (d time.Duration) {
	for _, s := range free {
		from, to := s.from, s.to
		if from.Before(w.from) {
			from = w.from
		}
		if to.After(w.to) {
			to = w.to
		}
		d += max(to.Sub(from), 0)
	}
	return d
}

// worst returns the wait for the most of which a worker was free, how many waits there were, and how long workers were free
// in all.
func (b *bench) worst(t *testing.T) (most time.Duration, of wait, count int, judged time.Duration) {
	t.Helper()
	type beat struct {
		Name string
		At   time.Time
	}
	pulses, now := map[string][]time.Time{}, time.Time{}
	for _, p := range rows[beat](t, b, `SELECT name, at FROM pulses ORDER BY at`) {
		pulses[p.Name], now = append(pulses[p.Name], p.At), p.At
	}
	notes := b.notes(t)
	spans := free(notes, pulses)
	for _, s := range spans {
		judged += s.to.Sub(s.from)
	}
	all := waits(notes, now)
	for _, w := range all {
		if d := w.counted(spans); d > most {
			most, of = d, w
		}
	}
	return most, of, len(all), judged
}

func TestAWaitCountsWhileAWorkerIsFree(t *testing.T) {
	t.Parallel()
	at := func(ms int) time.Time { return time.UnixMilli(int64(ms)) }
	notes := []note{
		{at(0), "joined", "a/1", ""},
		{at(0), "joined", "b/1", ""},
		{at(100), "ready", "x", ""},
		{at(150), "running", "x", "a/1"},
		{at(160), "ready", "x", ""},
		{at(170), "running", "x", "a/1"},
		{at(200), "begun", "x", ""},
		{at(290), "strikes", "a", ""},
		{at(300), "struck", "a", ""},
		{at(900), "ready", "x", ""},
		{at(950), "running", "x", "b/1"},
		{at(1000), "begun", "x", ""},
		{at(1100), "gone", "x", ""},
		{at(1200), "ready", "x", ""},
		{at(1300), "gone", "x", ""},
		{at(1350), "ready", "y", ""},
		{at(1800), "left", "c/1", ""},
		{at(1900), "left", "b/1", ""},
	}
	all := waits(notes, at(1400))
	assert.Equal(t, []wait{{span{at(100), at(200)}, "x"}, {span{at(300), at(1000)}, "x"}, {span{at(1200), at(1300)}, "x"}, {span{at(1350), at(1400)}, "y"}}, all)
	var a, b []time.Time
	for ms := 0; ms <= 2000; ms += 50 {
		a = append(a, at(ms))
		if ms <= 400 || ms >= 800 { // it was silent between
			b = append(b, at(ms))
		}
	}
	spans := free(notes, map[string][]time.Time{"a": a, "b": b})
	assert.Equal(t, []span{{at(0), at(400)}, {at(800), at(1900)}}, spans)
	assert.Equal(t, 100*time.Millisecond, all[0].counted(spans))
	assert.Equal(t, 300*time.Millisecond, all[1].counted(spans), "without the time of silence")
	assert.Equal(t, []span{{at(0), at(250)}}, free(notes, map[string][]time.Time{"a": a}), "not since it was struck")
}

// runCommand runs the statements of docs/how-to/incidents-of-turns.md.
func (b *bench) runCommand(t *testing.T) {
	t.Helper()
	page, err := os.ReadFile("../../docs/how-to/incidents-of-turns.md")
	require.NoError(t, err)
	statements := regexp.MustCompile(`(?m)^UPDATE .*;$`).FindAllString(string(page), -1)
	require.Len(t, statements, 2)
	for _, s := range statements {
		b.Exec(s)
	}
}

func TestEntitiesThatWereReadyBeforeTheClockWasSetBackWaitForItOrForTheCommand(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]bool{"until the command": false, "control: until the clock shows that time": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := service.NewClock(t)
			clock.Set(t, time.Hour) // ahead by mistake
			b := newBench(t, dbtest.Open(t, pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")))
			locker, err := advisory.Open(t.Context(), advisory.Config{DSN: b.DSN, LocksPerConn: 100})
			require.NoError(t, err)
			t.Cleanup(locker.Close)
			config := mailbox(b.pool)
			config.Locker, config.Concurrency, config.Batch, config.Pause, config.MaxPause = locker, 1, 1, time.Hour, time.Hour
			box, err := turns.Open(t.Context(), config)
			require.NoError(t, err)

			failed, finish, handled := false, make(chan struct{}), make(chan string, 10)
			ctx, cancel := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() {
				served <- box.Serve(ctx, func(ctx context.Context, turn *turns.Turn) error {
					entity := turn.Entity().Entity()
					if entity == "retried" && !failed { // one turn at a time
						failed = true
						return errors.New("no model")
					}
					if entity == "running" {
						handled <- "begun"
						<-finish
					}
					handled <- entity
					return turn.Commit(ctx, func(pgx.Tx) error { return nil })
				})
			}()
			t.Cleanup(func() { cancel(); assert.NoError(t, <-served) })
			send := func(entity string) error {
				key, err := entities.Text(entity)
				require.NoError(t, err)
				return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
					_, err := box.Send(t.Context(), tx, key, turns.Message{Body: []byte("hello")})
					return err
				})
			}
			next := func() string { return await.Receive(t, await.Patience, handled) }
			ready := func() []string {
				return dbtest.Ask[[]string](b, "SELECT array_agg(entity ORDER BY entity) FROM pglatch_turns.entities WHERE state = 'ready'")
			}
			require.NoError(t, send("retried"))
			b.Until(func() bool {
				return slices.Equal(ready(), []string{"retried"}) && dbtest.Ask[int](b, "SELECT attempts FROM pglatch_turns.entities") == 1
			})
			require.NoError(t, send("running"))
			require.Equal(t, "begun", next())
			require.NoError(t, send("waiting"))

			clock.Set(t, 0)
			require.NoError(t, send("new"))
			close(finish)
			require.Equal(t, "running", next(), "a turn goes on")
			require.Equal(t, "new", next(), "new messages have their turns")
			require.NoError(t, send("running"))
			require.Equal(t, "begun", next())
			require.Equal(t, "running", next())
			require.Equal(t, []string{"retried", "waiting"}, ready(), "they were ready before all others")

			if control {
				clock.Set(t, 3*time.Hour)
			} else {
				b.runCommand(t)
			}
			rest := []string{next(), next()}
			slices.Sort(rest)
			require.Equal(t, []string{"retried", "waiting"}, rest)
		})
	}
}

func TestAFullMailboxIsNotCountedAgainBeforeTheClockThatWasSetBackShowsThatTime(t *testing.T) {
	t.Parallel()
	clock := service.NewClock(t)
	b := newBench(t, dbtest.Open(t, pgtest.StartServer(t, pgserver.Options{Env: clock.Env}).DSN("")))
	config := mailbox(b.pool)
	config.MaxTotal = 1
	box, err := turns.Open(t.Context(), config)
	require.NoError(t, err)
	require.NoError(t, box.Migrate(t.Context()))
	key, err := entities.Text("a")
	require.NoError(t, err)
	send := func() error {
		return pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := box.Send(t.Context(), tx, key, turns.Message{Body: []byte("hello")})
			return err
		})
	}
	clock.Set(t, time.Hour)
	require.NoError(t, send())
	b.Exec("SELECT pglatch_turns.count_all('box', true)") // as a node does once a second
	require.ErrorIs(t, send(), turns.ErrLimit)
	clock.Set(t, 0)
	b.Exec("DELETE FROM pglatch_turns.messages")
	b.Exec("DELETE FROM pglatch_turns.entities")
	require.ErrorIs(t, send(), turns.ErrLimit, "the count before the step")
	b.runCommand(t)
	require.NoError(t, send())
}
