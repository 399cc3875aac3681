package namespace

import "strconv"

// A Key names one advisory lock and carries a label for logs, errors and the monitor.
// Only its Tag identifies it: keys with different labels and the same Tag are the same
// lock. The zero Key is invalid, and no lock can be taken on it.
type Key struct {
	tag       Tag
	namespace Namespace // zero for raw keys
	entity    string    // "" if the tag shows it
}

// Pair returns the raw key of pg_advisory_lock(k1, k2). If a namespace has the number k1,
// this is also the key of its entity k2.
func Pair(k1, k2 int32) Key { return Key{tag: pairTag(k1, k2)} }

// Single returns the raw key of pg_advisory_lock(k). A negative k gives a *Error that
// matches ErrInvalidKey: keys with the sign bit belong to pglatch's leader election.
// SingleRaw accepts any k.
func Single(k int64) (Key, error) {
	if k < 0 {
		return Key{}, &Error{
			Sentinel: ErrInvalidKey, Value: "@" + strconv.FormatInt(k, 10),
			Reason: "negative single keys belong to leader election; SingleRaw takes them",
		}
	}
	return SingleRaw(k), nil
}

// SingleRaw is Single without its check, for keys that another program chose. A negative
// key can collide with those of leader election.
func SingleRaw(k int64) Key { return Key{tag: singleTag(k)} }

// Tag returns the key as PostgreSQL identifies it. Use it for maps and equality.
func (k Key) Tag() Tag { return k.tag }

// Valid reports whether the key names a lock.
func (k Key) Valid() bool { return k.tag.Valid() }

// Namespace returns the key's namespace, the zero Namespace for raw keys.
func (k Key) Namespace() Namespace { return k.namespace }

// Entity returns the entity's text, "" for raw keys.
func (k Key) Entity() string {
	if k2, ok := k.integer(); ok {
		return strconv.FormatInt(int64(k2), 10)
	}
	return k.entity
}

// integer returns the entity if the key is a pair of a namespace. Only integers that fit
// int4 make such keys.
func (k Key) integer() (int32, bool) {
	_, k2, pair := k.tag.Pair()
	return k2, pair && k.namespace.number != 0
}

// String returns the text form that Set.Parse reads:
//
//   - "agent/42" for a key of a namespace
//   - "1:100" for a raw pair
//   - "@12345" for a raw single key
//   - "invalid" for the zero Key
//
// The text of a companion key, "agent/42#slot7", is only a label: parsed again, it
// would name an entity "42#slot7".
func (k Key) String() string {
	if k.namespace.number != 0 {
		return k.namespace.name + "/" + k.Entity()
	}
	return k.tag.String()
}

// String returns the raw text form: "1:100" for a pair, "@12345" for a single
// key, "invalid" for anything else.
func (t Tag) String() string {
	if k1, k2, ok := t.Pair(); ok {
		return strconv.FormatInt(int64(k1), 10) + ":" + strconv.FormatInt(int64(k2), 10)
	}
	if k, ok := t.Single(); ok {
		return "@" + strconv.FormatInt(k, 10)
	}
	return "invalid"
}

// Companion returns the key of another role of the same entity, such as "slot7" of the
// semaphore on k, for programs that take several locks for one entity. Like every
// derivation, it never changes. Only keys of a namespace have companions, and a role
// must not be empty. Otherwise Companion returns a *Error that matches ErrInvalidKey.
func (k Key) Companion(role string) (Key, error) {
	switch {
	case role == "":
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: k.String(), Reason: "a companion needs a role"}
	case k.namespace.number == 0:
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: k.String(), Reason: "a semaphore needs the key of a namespace, not a raw key"}
	}
	c := k
	c.tag = singleTag(k.namespace.derive(k.Entity(), role))
	c.entity = k.Entity() + "#" + role
	return c, nil
}
