package namespace

import (
	"iter"
	"slices"
	"strconv"
	"strings"
)

// A Set holds the namespaces of a program. It gives names to keys that are read from
// PostgreSQL or from text. A Set is immutable. A nil *Set is empty and usable: it knows
// only raw keys.
type Set struct{ namespaces []Namespace }

// NewSet returns the set of the given namespaces. Two namespaces that share a number or a
// name, even if they are equal, give a *ClashError that names both. Otherwise two parts
// of a program would exclude each other without knowing it. The zero Namespace gives an
// error that matches ErrInvalidNamespace.
func NewSet(namespaces ...Namespace) (*Set, error) {
	for i, n := range namespaces {
		if n.number == 0 {
			return nil, &Error{Sentinel: ErrInvalidNamespace, Value: n.String(), Reason: "make namespaces with namespace.New or namespace.Must"}
		}
		for _, o := range namespaces[:i] {
			if n.number == o.number || n.name == o.name {
				return nil, &ClashError{A: o, B: n}
			}
		}
	}
	return &Set{namespaces: slices.Clone(namespaces)}, nil
}

// All yields the namespaces in the order in which they were given.
func (s *Set) All() iter.Seq[Namespace] {
	if s == nil {
		return func(func(Namespace) bool) {}
	}
	return slices.Values(s.namespaces)
}

// Named returns the namespace of that name.
func (s *Set) Named(name string) (Namespace, bool) {
	return s.find(func(n Namespace) bool { return n.name == name })
}

// Numbered returns the namespace of that number.
func (s *Set) Numbered(number int) (Namespace, bool) {
	return s.find(func(n Namespace) bool { return n.Number() == number })
}

func (s *Set) find(match func(Namespace) bool) (Namespace, bool) {
	for n := range s.All() {
		if match(n) {
			return n, true
		}
	}
	return Namespace{}, false
}

// Describe interprets a tag from pg_locks. ok reports whether the set has a namespace
// with the tag's number, and n is that namespace. entity is the integer of a pair. It is
// "" for a hashed key, whose entity cannot be read back. Any program may take any key, so
// a description is a reading, not a proof of who took it.
func (s *Set) Describe(t Tag) (n Namespace, entity string, ok bool) {
	number, ok := t.NamespaceNumber()
	if !ok {
		return Namespace{}, "", false
	}
	if n, ok = s.Numbered(number); !ok {
		return Namespace{}, "", false
	}
	if _, k2, pair := t.Pair(); pair {
		entity = strconv.FormatInt(int64(k2), 10)
	}
	return n, entity, true
}

// Parse reads the text form of a key:
//
//   - "agent/42" is an entity of the set's namespace agent: everything after the first
//     '/' is the entity.
//   - "1:100" is a raw pair of int4.
//   - "@12345" is a raw int8, which may be negative.
//
// A name that the set does not have gives an error that matches ErrUnknownNamespace.
// Other text gives one that matches ErrInvalidKey.
func (s *Set) Parse(text string) (Key, error) {
	if raw, ok := strings.CutPrefix(text, "@"); ok {
		if k, ok := canonicalInt(raw); ok {
			return SingleRaw(k), nil
		}
		return Key{}, invalidText(text, "after '@' stands one decimal int8")
	}
	if name, entity, ok := strings.Cut(text, "/"); ok && validName(name) {
		n, ok := s.Named(name)
		if !ok {
			return Key{}, &Error{Sentinel: ErrUnknownNamespace, Value: strconv.Quote(name), Reason: "it is not one of the program's namespaces"}
		}
		return n.Text(entity)
	}
	if first, second, ok := strings.Cut(text, ":"); ok {
		k1, ok1 := canonicalInt32(first)
		k2, ok2 := canonicalInt32(second)
		if ok1 && ok2 {
			return Pair(k1, k2), nil
		}
		return Key{}, invalidText(text, "around ':' stand two decimal int4")
	}
	return Key{}, invalidText(text, `the forms are "agent/42", "1:100" and "@12345"`)
}

func canonicalInt32(s string) (int32, bool) {
	k, ok := canonicalInt(s)
	return int32(k), ok && int64(int32(k)) == k
}

func invalidText(text, reason string) error {
	return &Error{Sentinel: ErrInvalidKey, Value: strconv.Quote(text), Reason: reason}
}
