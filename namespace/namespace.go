package namespace

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
)

// MaxNumber is the largest number of a namespace; the smallest is 1.
const MaxNumber = 1<<15 - 1

// maxNameLength keeps names readable in logs. It equals PostgreSQL's limit for
// identifiers.
const maxNameLength = 63

// A Namespace is a kind of entity. It has a name, and a number that becomes part of
// each of its keys. Two values with equal number and name are the same namespace.
// The zero Namespace is invalid: make one with New or Must.
type Namespace struct {
	name   string
	number int16
}

// New returns the namespace with the given number, 1 to 32767, and name. A name
// begins with an ASCII letter, continues with letters, digits, '_', '-' or '.', and
// has at most 63 bytes. Other values give a *Error that matches ErrInvalidNamespace.
func New(number int, name string) (Namespace, error) {
	if number < 1 || number > MaxNumber {
		return Namespace{}, &Error{Sentinel: ErrInvalidNamespace, Value: strconv.Itoa(number), Reason: "the number of a namespace is 1 to 32767"}
	}
	if !validName(name) {
		return Namespace{}, &Error{
			Sentinel: ErrInvalidNamespace, Value: strconv.Quote(name),
			Reason: "the name of a namespace begins with an ASCII letter, goes on with letters, digits, '_', '-' or '.', and has at most 63 bytes",
		}
	}
	return Namespace{number: int16(number), name: name}, nil
}

// Must is New for package variables: it panics if New returns an error.
func Must(number int, name string) Namespace {
	n, err := New(number, name)
	if err != nil {
		panic(err)
	}
	return n
}

// Number returns the namespace's number, 0 for the zero Namespace.
func (n Namespace) Number() int { return int(n.number) }

// Name returns the namespace's name, "" for the zero Namespace.
func (n Namespace) Name() string { return n.name }

// String returns "name=number", the form of the command line's --namespace flag.
func (n Namespace) String() string { return n.name + "=" + strconv.Itoa(int(n.number)) }

// ID returns the key of an integer entity: the pair (number, id) if id fits int4,
// otherwise a hashed single key.
func (n Namespace) ID(id int64) Key {
	if id >= math.MinInt32 && id <= math.MaxInt32 {
		return n.key(pairTag(int32(n.number), int32(id)), "")
	}
	return n.hashed(strconv.FormatInt(id, 10))
}

// UUID returns the key of an entity that is named by a UUID.
func (n Namespace) UUID(id uuid.UUID) Key { return n.hashed(id.String()) }

// Text returns the key of an entity that is named by text. Text that is the
// canonical decimal of an int64 gives the key of ID. Text in the 36-byte canonical
// form of a UUID, in any case, gives the key of UUID. Three kinds of text give a
// *Error that matches ErrInvalidKey: empty text, text that is not UTF-8, and text
// with a NUL byte, which SQL could not hash.
func (n Namespace) Text(entity string) (Key, error) {
	switch {
	case entity == "":
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: n.name + "/", Reason: "the entity is empty"}
	case !utf8.ValidString(entity):
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: strconv.Quote(entity), Reason: "the entity is not UTF-8"}
	case strings.IndexByte(entity, 0) >= 0:
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: strconv.Quote(entity), Reason: "the entity has a NUL byte"}
	case n.number == 0:
		return Key{}, &Error{Sentinel: ErrInvalidKey, Value: strconv.Quote(entity), Reason: "the namespace is the zero Namespace: make one with namespace.New"}
	}
	if id, ok := canonicalInt(entity); ok {
		return n.ID(id), nil
	}
	if len(entity) == 36 {
		if id, err := uuid.Parse(entity); err == nil {
			return n.UUID(id), nil
		}
	}
	return n.hashed(entity), nil
}

func (n Namespace) hashed(entity string) Key {
	return n.key(singleTag(n.derive(entity, "")), entity)
}

// key makes a key. The zero Namespace fails closed here: its keys are the invalid
// zero Key.
func (n Namespace) key(tag Tag, entity string) Key {
	if n.number == 0 {
		return Key{}
	}
	return Key{tag: tag, namespace: n, entity: entity}
}

// canonicalInt returns the integer whose decimal text s is: no sign but '-', no
// leading zeros, no "-0".
func canonicalInt(s string) (int64, bool) {
	id, err := strconv.ParseInt(s, 10, 64)
	if err != nil || strconv.FormatInt(id, 10) != s {
		return 0, false
	}
	return id, true
}

func validName(name string) bool {
	if name == "" || len(name) > maxNameLength {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		other := c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !letter && (i == 0 || !other) {
			return false
		}
	}
	return true
}
