package etcd

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/internal/rules"
)

// A kind is the purpose of one of the keys of a name. The first is its record. The others are
// marks, each attached to an etcd lease of its own, which removes it.
type kind byte

const (
	recordKey kind = iota
	held           // the lease has not expired
	delayed        // LockDelay is not over
	kept           // MinHold is not over
	alive          // MaxLifetime is not over
	kinds
)

// The keys of a name are adjacent, and in the order of the names' bytes, because a name has no
// control characters. The keys of the whole store come first.
const (
	separator = "\x00"
	behind    = "\x01" // after all keys of a name
)

var suffixes = [kinds]string{separator, separator + "h", separator + "d", separator + "k", separator + "l"}

func (s *Store) key(name string, k kind) string { return s.config.Prefix + name + suffixes[k] }

// parse is the reverse of key.
func (s *Store) parse(key []byte) (name string, k kind, ok bool) {
	name, rest, found := strings.Cut(strings.TrimPrefix(string(key), s.config.Prefix), separator)
	if !found || name == "" {
		return "", 0, false
	}
	for k, suffix := range suffixes {
		if separator+rest == suffix {
			return name, kind(k), true
		}
	}
	return "", 0, false
}

// A record is the stored data of a name until it is forgotten. All its times are for people.
type record struct {
	Holder      string            `json:"holder"`
	ID          string            `json:"id"`
	Token       uint64            `json:"token,omitempty"` // 0 = Base and the revision of the record, which is the first of its name or era
	Base        uint64            `json:"base,omitempty"`  // of the versions, and of that token
	Key         string            `json:"key,omitempty"`
	Metadata    map[string]string `json:"metadata,omitempty"`
	AcquiredAt  time.Time         `json:"acquired_at"`
	ExpiresAt   time.Time         `json:"expires_at"`
	ReleasedAt  time.Time         `json:"released_at,omitzero"`
	LockDelay   time.Duration     `json:"lock_delay,omitempty"`
	MinHold     time.Duration     `json:"min_hold,omitempty"`
	MaxLifetime time.Duration     `json:"max_lifetime,omitempty"`
	Cleared     bool              `json:"cleared,omitempty"`
	Uncounted   int               `json:"uncounted,omitempty"`
	LastRelease string            `json:"last_release,omitempty"`
}

// encode returns the record of a row. token is 0 for a token that is known only when it is stored.
func encode(row rules.Row, base, token uint64) (string, error) {
	text, err := json.Marshal(record{
		Holder: row.Holder, ID: row.ID, Token: token, Base: base, Key: row.IdempotencyKey, Metadata: row.Metadata,
		AcquiredAt: row.AcquiredAt, ExpiresAt: row.ExpiresAt, ReleasedAt: row.ReleasedAt,
		LockDelay: row.LockDelay, MinHold: row.MinHold, MaxLifetime: row.MaxLifetime, Cleared: row.Cleared, Uncounted: row.Uncounted, LastRelease: row.LastRelease,
	})
	return string(text), err
}

func decode(name string, kv *mvccpb.KeyValue) (row rules.Row, err error) {
	var r record
	if err := json.Unmarshal(kv.Value, &r); err != nil {
		return row, fmt.Errorf("lease/etcd: the record of %q is not one: %w", name, err)
	}
	version := r.Base + uint64(kv.ModRevision)
	if r.Token == 0 {
		r.Token = version
	}
	return rules.Row{
		Claim:          lease.Claim{Name: name, Holder: r.Holder, ID: r.ID, Token: r.Token},
		IdempotencyKey: r.Key, Metadata: r.Metadata, AcquiredAt: r.AcquiredAt, ExpiresAt: r.ExpiresAt, ReleasedAt: r.ReleasedAt,
		LockDelay: r.LockDelay, MinHold: r.MinHold, MaxLifetime: r.MaxLifetime, Cleared: r.Cleared, Uncounted: r.Uncounted, LastRelease: r.LastRelease, Version: version,
	}, nil
}

// A mark is a key that is attached to an etcd lease. The zero mark is none.
type mark struct {
	lease   clientv3.LeaseID
	asked   int64 // seconds
	granted int64 // no fewer
	term    int64 // a term of etcd's leaders in which it was granted, or an earlier one
	shared  bool  // keys of other names may be attached to the etcd lease: it is never renewed while one is
}

func (m mark) set() bool { return m.lease != 0 }

// since reports whether the mark was granted in a term of etcd's leaders, or later. Then no leader
// of an earlier term has counted it.
func (m mark) since(term int64) bool { return term != 0 && m.term == term }

// sharedMark is before the value of a mark that is shared. A Store of a version that does not know
// it leaves the name alone.
const sharedMark = "shared "

func (m mark) value() string {
	value := fmt.Sprintf("%d/%d/%d", m.asked, m.granted, m.term)
	if m.shared {
		return sharedMark + value
	}
	return value
}

func decodeMark(kv *mvccpb.KeyValue) (mark, error) {
	m := mark{lease: clientv3.LeaseID(kv.Lease)}
	value, shared := strings.CutPrefix(string(kv.Value), sharedMark)
	m.shared = shared
	if n, _ := fmt.Sscanf(value, "%d/%d/%d", &m.asked, &m.granted, &m.term); n < 3 || !m.set() {
		return m, fmt.Errorf("lease/etcd: the key %q is none of this store's", kv.Key)
	}
	return m, nil
}
