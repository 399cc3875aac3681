package file

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gofrs/flock"

	"github.com/pglatch/pglatch/leader/driver"
)

// maxIdentity is the maximum number of bytes of an identity, so that every record can be read.
const maxIdentity = 1024

// A Backend elects a leader with one file. It implements driver.Backend, driver.Waiter, driver.Termer,
// driver.Successor, driver.Inspector and io.Closer. Only one goroutine at a time may call its methods,
// except Leader, which is safe for concurrent use.
type Backend struct {
	path   string
	repair bool
	now    func() moment
	lock   *flock.Flock
	seen   *sighting

	patience time.Duration // patience with another process that has the lock
	stuck    standstill    // standstill of that process
	wait     time.Duration // patience after recent replacements
	rename   func(from, to string) error

	id       string // random; prefix of this Backend's incarnations
	attempts int    // number of attempts that got as far as writing
	holds    bool   // the record may have one of this Backend's incarnations
	leads    bool   // the last attempt succeeded, and nothing has ended its leadership
	term     driver.Term
	clean    bool
}

var _ interface {
	driver.Backend
	driver.Waiter
	driver.Termer
	driver.Successor
	driver.Inspector
	driver.Labeled
	io.Closer
} = (*Backend)(nil)

// NewBackend returns a Backend on the file with that path. The directory must exist. NewBackend does not
// touch either: the first TryAcquire creates the file. A relative path is resolved in the current directory
// of this call.
func NewBackend(path string) *Backend {
	if full, err := filepath.Abs(path); err == nil && path != "" {
		path = full
	}
	return &Backend{
		path: path, now: newClock(), lock: flock.New(path + lockSuffix), seen: new(sighting), id: rand.Text(),
		patience: lockPatience, rename: os.Rename,
	}
}

// WithRepair returns a Backend on the same file that replaces a corrupt file, as described in the package's
// documentation. It shares nothing else with b.
func (b *Backend) WithRepair() *Backend {
	r := NewBackend(b.path)
	r.repair = true
	return r
}

// LogAttrs returns the path of the file.
func (b *Backend) LogAttrs() []slog.Attr { return []slog.Attr{slog.String("file", b.path)} }

func (b *Backend) termPath() string { return b.path + termSuffix }

// TryAcquire makes one attempt. On success a new term has begun, even if this Backend led before. It returns
// false if another process leads or may lead. An attempt that fails with a *CorruptError changes nothing. If
// ctx ends while another process has the lock, nothing changes. identity is UTF-8 of at most 1024 bytes; ttl is
// more than 0, and at most 24 h.
func (b *Backend) TryAcquire(ctx context.Context, identity string, ttl time.Duration) (bool, error) {
	if err := b.check(identity, ttl); err != nil {
		return false, err
	}
	var next driver.Term
	var clean bool
	b.leads = false
	done, err := b.change(ctx, "acquire", func(v view) ([]*draft, error) {
		switch {
		case v.free() || b.made(v.record):
		case v.damage != nil:
			return nil, b.announced(v.damage, v.left)
		default:
			return nil, nil
		}
		known, err := readTermFile(b.termPath())
		if err != nil && v.Term == (term{}) {
			return nil, err // otherwise the record has the same information
		}
		b.sweep()
		next, clean = following(driver.Term(v.Term), known.term), v.clean
		b.attempts++
		b.holds = true // even if the change fails
		r, err := b.draft(record{
			Holder: identity, AcquireTime: time.Now().UTC(), PID: os.Getpid(), Term: term(next), Incarnation: b.incarnation(),
		}, ttl)
		return []*draft{{path: b.termPath(), data: termFile{next, ttl}.encode()}, r}, err
	})
	if !done || err != nil {
		return false, err
	}
	b.leads, b.term, b.clean = true, next, clean
	return true, nil
}

// incarnation returns the incarnation of the last attempt. Each attempt has its own.
func (b *Backend) incarnation() string { return fmt.Sprintf("%s-%d", b.id, b.attempts) }

// made reports whether an attempt of this Backend wrote the record.
func (b *Backend) made(r record) bool { return strings.HasPrefix(r.Incarnation, b.id+"-") }

// following returns the term after t and u.
func following(t, u driver.Term) driver.Term {
	if t.Compare(u) < 0 {
		t = u
	}
	return driver.Term{Era: cmp.Or(t.Era, 1), N: t.N + 1}
}

// draft returns the record, renewed now.
func (b *Backend) draft(r record, ttl time.Duration) (*draft, error) {
	r.Version, r.LeaseDuration, r.RenewTime = version, duration(ttl), time.Now().UTC()
	now := b.now()
	r.Clock, r.ClockTime = now.clock, duration(now.time)
	data, err := r.encode()
	return &draft{path: b.path, data: data}, err
}

// Renew extends leadership. The error matches leader.ErrLost in these cases:
//
//   - Another process has led since TryAcquire.
//   - The file was removed.
//   - The lease had ended, even if nobody took leadership: others may have seen that nobody led, so the term
//     has ended.
//
// If the lease ended while the file was being written, the file shows a leader for one more lease, or until
// Release.
func (b *Backend) Renew(ctx context.Context, identity string, ttl time.Duration) error {
	if err := b.check(identity, ttl); err != nil {
		return err
	}
	if !b.leads {
		return failed("renew", b.path, fmt.Errorf("%w: %s does not lead", driver.ErrLost, identity))
	}
	var old view
	_, err := b.change(ctx, "renew", func(v view) ([]*draft, error) {
		old = v
		switch {
		case v.damage != nil:
			return nil, v.damage
		case v.Holder != identity || v.Incarnation != b.incarnation():
			b.leads = false
			return nil, fmt.Errorf("%w: the leader is %q, in term %v", driver.ErrLost, v.Holder, driver.Term(v.Term))
		case v.free():
			b.leads = false
			return nil, fmt.Errorf("%w: its lease ended %v ago", driver.ErrLost, -v.left)
		}
		r, err := b.draft(v.record, ttl)
		if err != nil || ttl <= time.Duration(v.LeaseDuration) {
			return []*draft{r}, err
		}
		known, _ := readTermFile(b.termPath()) // if that fails, the record has the same information
		return []*draft{{path: b.termPath(), data: known.grown(driver.Term(v.Term), ttl).encode()}, r}, nil
	})
	if late := b.now().time - old.at.time - old.left; err == nil && late >= 0 {
		b.leads = false // the process was stopped between the look and the change
		return failed("renew", b.path, fmt.Errorf("%w: its lease ended %v ago, while it was renewed", driver.ErrLost, late))
	}
	return err
}

// Release gives up leadership, or what a failed attempt left. All others see that at once. If this Backend
// holds nothing for that identity, Release does nothing. The next start is clean unless the lease had
// ended before.
func (b *Backend) Release(ctx context.Context, identity string) error {
	if !b.holds {
		return nil
	}
	other := false
	_, err := b.change(ctx, "release", func(v view) ([]*draft, error) {
		other = b.made(v.record) && v.Holder != identity
		switch {
		case v.damage != nil:
			return nil, v.damage
		case other || !b.made(v.record):
			return nil, nil
		}
		r := v.record
		r.Holder, r.Incarnation, r.Released = "", "", b.leads && !v.free()
		d, err := b.draft(r, time.Duration(r.LeaseDuration))
		return []*draft{d}, err
	})
	if err == nil && !other {
		b.holds, b.leads = false, false
	}
	return err
}

// Close drops a leadership: Renew no longer extends it. It ends when its lease ends, or with this Backend's
// next TryAcquire or Release. Close returns nil.
func (b *Backend) Close() error {
	b.leads = false
	return nil
}

// Term returns the term of the last leadership, or the zero Term.
func (b *Backend) Term() driver.Term { return b.term }

// CleanStart reports whether the previous term was released, or there was none.
func (b *Backend) CleanStart() bool { return b.clean }

// check validates the arguments of a call.
func (b *Backend) check(identity string, ttl time.Duration) error {
	switch {
	case b.path == "":
		return &driver.ConfigError{Field: "path", Value: `""`, Remedy: "name the file of the election"}
	case reserved(filepath.Base(b.path)):
		return &driver.ConfigError{Field: "path", Value: fmt.Sprintf("%q", b.path), Remedy: "use another name: elections keep files of such names beside theirs"}
	case identity == "" || len(identity) > maxIdentity || !utf8.ValidString(identity):
		return &driver.ConfigError{Field: "Identity", Value: fmt.Sprintf("%q", identity), Remedy: "use text of at most 1024 bytes"}
	case ttl <= 0 || ttl > driver.MaxLeaseDuration:
		return &driver.ConfigError{Field: "LeaseDuration", Value: ttl, Remedy: "use more than 0, to 24h"}
	}
	return nil
}
