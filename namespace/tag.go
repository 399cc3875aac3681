package namespace

import "cmp"

// The values of pg_locks.objsubid for the two forms of advisory-lock key.
const (
	SingleForm = 1 // one int8
	PairForm   = 2 // two int4
)

// A Tag is a key as PostgreSQL identifies it: the columns classid, objid and objsubid of
// pg_locks (PostgreSQL manual, section 54.12). classid and objid are unsigned halves of
// signed numbers. Tags are comparable: in one database, two keys are the same lock if
// their Tags are equal.
type Tag struct {
	ClassID  uint32
	ObjID    uint32
	ObjSubID uint16
}

func pairTag(k1, k2 int32) Tag {
	return Tag{ClassID: uint32(k1), ObjID: uint32(k2), ObjSubID: PairForm}
}

func singleTag(k int64) Tag {
	return Tag{ClassID: uint32(uint64(k) >> 32), ObjID: uint32(k), ObjSubID: SingleForm}
}

// Valid reports whether the tag belongs to an advisory-lock key.
func (t Tag) Valid() bool { return t.ObjSubID == SingleForm || t.ObjSubID == PairForm }

// Pair returns the two int4 of a pair key; ok is false for another form.
func (t Tag) Pair() (k1, k2 int32, ok bool) {
	return int32(t.ClassID), int32(t.ObjID), t.ObjSubID == PairForm
}

// Single returns the int8 of a single key; ok is false for another form.
func (t Tag) Single() (k int64, ok bool) {
	return int64(uint64(t.ClassID)<<32 | uint64(t.ObjID)), t.ObjSubID == SingleForm
}

// MarshalText writes the tag as String does.
func (t Tag) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what String writes. Other text gives an ErrInvalidKey, a key with a
// namespace's name an ErrUnknownNamespace. In both cases the tag does not change.
func (t *Tag) UnmarshalText(text []byte) error {
	var unnamed *Set
	key, err := unnamed.Parse(string(text))
	if err == nil {
		*t = key.Tag()
	}
	return err
}

// Compare orders tags by form, classid and objid, unsigned. pglatch takes several locks
// in this order, which never changes.
func (t Tag) Compare(o Tag) int {
	return cmp.Or(
		cmp.Compare(t.ObjSubID, o.ObjSubID),
		cmp.Compare(t.ClassID, o.ClassID),
		cmp.Compare(t.ObjID, o.ObjID),
	)
}

// NamespaceNumber returns the number of the namespace that the tag may belong to. Any
// program can take any key, so this is a reading, not a proof.
func (t Tag) NamespaceNumber() (number int, ok bool) {
	switch {
	case t.ObjSubID == PairForm && t.ClassID <= MaxNumber:
		number = int(t.ClassID)
	case t.ObjSubID == SingleForm && t.ClassID>>31 == 0:
		number = int(t.ClassID >> 16)
	}
	return number, number != 0
}
