package sqlite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/soak"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

func TestWhatChangesSomethingIsSyncedOnce(t *testing.T) {
	t.Parallel()
	for durability, each := range map[sqlite.Durability]int{sqlite.Durable: 1, sqlite.Relaxed: 0} {
		d := newDisk(t, newPath(t), nil, nil)
		s := d.open(t, sqlite.Config{Durability: durability})
		first := acquire(t, s, "first") // after the checkpoint of opening, which the header's sync ends
		syncs := 0
		d.onSync(func(string) error { syncs++; return nil })
		_, err := s.Acquire(t.Context(), request("first"))
		require.ErrorIs(t, err, lease.ErrHeld)
		assert.Zero(t, syncs, "a refusal changes nothing")
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: first.Claim, TTL: 2 * time.Hour})
		require.NoError(t, err)
		assert.Equal(t, each, syncs, durability)
		acquire(t, s, "job")
		require.NoError(t, s.Release(t.Context(), first.Claim))
		assert.Equal(t, 3*each, syncs, durability)
	}
}

// Neither the answer nor what readers see may be lost any more.
func TestNobodyIsToldWhatIsNotSynced(t *testing.T) {
	t.Parallel()
	d := newDisk(t, newPath(t), nil, nil)
	s := d.open(t, sqlite.Config{})
	acquire(t, s, "first")
	began, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	d.onSync(func(string) error {
		once.Do(func() { close(began) })
		<-end
		return nil
	})
	goOn := sync.OnceFunc(func() { close(end) })
	defer goOn()
	granted := make(chan error, 1)
	go func() {
		_, err := s.Acquire(context.WithoutCancel(t.Context()), request("job"))
		granted <- err
	}()
	select {
	case <-began:
	case err := <-granted:
		require.Fail(t, "answered before a sync began", "%v", err)
	}
	require.Contains(t, string(d.killed(t)["-wal"]), "job", "it is written")
	_, err := s.Get(t.Context(), "job")
	require.ErrorIs(t, err, lease.ErrNotFound)
	for r, err := range s.List(t.Context(), lease.ListRequest{}) {
		require.NoError(t, err)
		require.Equal(t, "first", r.Name)
	}
	require.Empty(t, granted)

	goOn()
	require.NoError(t, <-granted)
	_, err = s.Get(t.Context(), "job")
	require.NoError(t, err)
}

// acknowledged are the last answers about names.
type acknowledged map[string]lease.Record

// work has a lease granted, renewed or released, by turns, and remembers the answer.
func (a acknowledged) work(t *testing.T, s *sqlite.Store, i int) {
	t.Helper()
	name := fmt.Sprint("job/", i%7)
	r, err := s.Get(t.Context(), name)
	switch {
	case errors.Is(err, lease.ErrNotFound) || r.State != lease.Held:
		acquire(t, s, name)
	case i%2 == 0:
		_, err = s.Renew(t.Context(), lease.RenewRequest{Claim: r.Claim, TTL: 2 * time.Hour})
		require.NoError(t, err)
	default:
		require.NoError(t, s.Release(t.Context(), r.Claim))
	}
	a[name], err = s.Get(t.Context(), name)
	require.NoError(t, err)
}

// undone opens what is left, and returns an answer that does not hold any more, or why it is
// refused. What was not answered may have happened.
func (a acknowledged) undone(t *testing.T, left files) string {
	t.Helper()
	path := newPath(t)
	left.write(t, path)
	s, err := sqlite.Open(t.Context(), path, sqlite.Config{Durability: sqlite.Relaxed})
	if err != nil {
		return err.Error()
	}
	defer func() { require.NoError(t, s.Close()) }()
	for name, was := range a {
		is, err := s.Get(t.Context(), name)
		if errors.Is(err, lease.ErrNotFound) || is.Version < was.Version {
			return fmt.Sprintf("%s: version %d is gone, there is %d", name, was.Version, is.Version)
		}
		require.NoError(t, err)
		if is.Version == was.Version {
			assert.Equal(t, was.Claim, is.Claim)
			assert.Equal(t, was.State, is.State)
		}
	}
	places, err := s.Integer(t.Context(), "SELECT (SELECT count(*) FROM due) - (SELECT count(*) FROM leases)")
	require.NoError(t, err)
	if places != 0 {
		return fmt.Sprintf("there are %d more places than names", places)
	}
	return ""
}

// The power fails before each sync, in which the answer to one request is pending, and after each
// answer. The WAL is moved into the file again and again. The control: what is not synced is lost.
func TestAPowerFailureUndoesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	for durability, found := range map[sqlite.Durability]bool{sqlite.Durable: false, sqlite.Relaxed: true} {
		path := newPath(t)
		d, known, lost := newDisk(t, path, nil, nil), make(acknowledged), ""
		fails := func() {
			if left := d.powerless(t); lost == "" {
				lost = known.undone(t, left)
			}
		}
		s := d.open(t, sqlite.Config{Durability: durability}, "wal_autocheckpoint(15)")
		d.onSync(func(string) error { fails(); return nil })
		for i := range soak.Size(t, 40, 1000) {
			known.work(t, s, i)
			fails()
		}
		d.onSync(func(string) error { return nil })
		assert.Equal(t, found, lost != "", "%s: %s", durability, lost)
	}
}

var errDisk = errors.New("disk is broken")

func TestASyncThatFailsUndoesNothingThatWasAnswered(t *testing.T) {
	t.Parallel()
	for name, drops := range map[string]bool{"the system shows what it did not write": false, "the system shows what the disk has": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, known := newDisk(t, newPath(t), nil, nil), make(acknowledged)
			s := d.open(t, sqlite.Config{})
			for i := range 10 {
				known.work(t, s, i)
			}
			held := acquire(t, s, "held")
			d.onSync(func(string) error { return errDisk })
			_, err := s.Acquire(t.Context(), request("job"))
			require.ErrorIs(t, err, sqlite.ErrIO)
			if drops {
				d.drop(t)
			}
			require.ErrorIs(t, s.Release(t.Context(), held.Claim), sqlite.ErrIO)
			health := s.Health(t.Context())
			require.ErrorIs(t, health, sqlite.ErrIO)
			require.NotErrorIs(t, health, lease.ErrBroken)
			_, err = s.Get(t.Context(), "job")
			require.ErrorIs(t, err, lease.ErrNotFound)
			known["held"], err = s.Get(t.Context(), "held")
			require.NoError(t, err, "what was answered can be read")
			require.Empty(t, known.undone(t, d.powerless(t)))

			d.onSync(func(string) error { return nil })
			require.NoError(t, s.Health(t.Context()))
			for i := range 10 {
				known.work(t, s, i)
				require.Empty(t, known.undone(t, d.powerless(t)))
			}
			require.NoError(t, s.Release(t.Context(), held.Claim))
		})
	}
}

// drop has the system show what the disk has.
func (d *disk) drop(t *testing.T) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	wal := d.files["-wal"]
	text := make([]byte, len(wal.shown))
	copy(text, wal.kept)
	wal.shown, wal.pending = text, nil
	require.NoError(t, os.WriteFile(d.path+"-wal", text, 0o600))
}

// A process that is killed after a sync failed leaves a commit that the disk does not have, and the
// system counts as written. If the next one only synced it, a power failure while it is moved into
// the file would leave a part: the control.
func TestWhatAFailedSyncLeftIsWrittenAgainBeforeItIsUsed(t *testing.T) {
	t.Parallel()
	for _, again := range []bool{true, false} {
		found := ""
		for round := 0; round < 100 && found == "" && (!again || round < soak.Size(t, 4, 30)); round++ {
			d, known := newDisk(t, newPath(t), nil, nil), make(acknowledged)
			s := d.open(t, sqlite.Config{})
			known.work(t, s, 0)
			require.NoError(t, s.Close())
			s = d.open(t, sqlite.Config{})
			d.onSync(func() func(string) error {
				syncs := 0
				return func(string) error {
					if syncs++; syncs == 2 { // the first is of the header
						return errDisk
					}
					return nil
				}
			}())
			_, err := s.Acquire(t.Context(), request("job"))
			require.ErrorIs(t, err, sqlite.ErrIO)
			shown, kept := d.killed(t), d.powerless(t)

			next := newDisk(t, newPath(t), shown, kept)
			next.again = again
			next.onSync(func(string) error {
				if found == "" {
					found = known.undone(t, next.powerless(t))
				}
				return nil
			})
			acquire(t, next.open(t, sqlite.Config{}), "next")
			next.onSync(func(string) error { return nil })
		}
		require.Equal(t, !again, found != "", found)
	}
}

func TestAnOpenWhoseSyncFailsIsRefused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	fails := func(*os.File) error { return errDisk }
	_, err := sqlite.OpenOnVFS(t.Context(), path, sqlite.Config{}, "", fails)
	require.ErrorIs(t, err, sqlite.ErrIO)
	require.ErrorIs(t, err, errDisk)
	acquire(t, open(t, path, sqlite.Config{}), "job")
}

func TestAStoreWhoseWALIsLostOrDamagedSaysSoOnceWhenItIsOpened(t *testing.T) {
	t.Parallel()
	left, _ := killed(t, sqlite.Open)
	wal := left["-wal"]
	require.Greater(t, len(wal), 32+3*(24+4096), "several frames")
	flipped := func(at int) []byte {
		text := bytes.Clone(wal)
		text[at] ^= 1
		return text
	}
	for problem, files := range map[string]files{
		"it is gone":            left.with("-wal", nil),
		"it is empty or cut":    left.with("-wal", []byte{}),
		"its header is damaged": left.with("-wal", flipped(17)),
		"frame 2 is damaged":    left.with("-wal", flipped(32+24+4096+24+100)),
		"":                      left, // the control: it was only killed
	} {
		path, log := newPath(t), new(bytes.Buffer)
		files.write(t, path)
		config := sqlite.Config{Logger: slog.New(slog.NewTextHandler(log, nil))}
		s, err := sqlite.Open(t.Context(), path, config)
		require.NoError(t, err, problem)
		require.NoError(t, s.Close())
		if problem == "" {
			assert.Empty(t, log.String())
		} else {
			assert.Equal(t, 1, strings.Count(log.String(), "level=WARN msg=wal_damaged"), "%s: %s", problem, log)
			assert.Contains(t, log.String(), problem)
		}
		log.Reset()
		s, err = sqlite.Open(t.Context(), path, config) // which was closed: it has no WAL to miss
		require.NoError(t, err)
		require.NoError(t, s.Close())
		assert.Empty(t, log.String())
	}
}
