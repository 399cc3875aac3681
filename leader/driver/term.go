package driver

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A Term numbers a leadership. Each Term is greater than all earlier ones, in every process. It is a fencing
// token: a receiver refuses a write if it has already seen a greater Term.
//
// After the promotion of a standby or the restore of a backup, the store that counts N may have forgotten some
// terms. Then Era rises, or N continues from a much greater number. So terms rise even then, if the backend can
// detect the event; its documentation lists the exceptions. The zero Term means that there is none: the backend
// does not count terms, or nobody leads.
type Term struct {
	Era uint16 // at most MaxEra
	N   uint64 // at most MaxN
}

// The limits of a Term's parts. They keep its Uint64 within a positive int64.
const (
	MaxEra = 1<<15 - 1
	MaxN   = 1<<48 - 1
)

// IsZero reports whether t is the zero Term.
func (t Term) IsZero() bool { return t == Term{} }

// Compare returns -1, 0 or 1 if t is before, equal to or after u.
func (t Term) Compare(u Term) int {
	return cmp.Or(cmp.Compare(t.Era, u.Era), cmp.Compare(t.N, u.N))
}

// Follows reports whether t came directly after u, with no term between them.
func (t Term) Follows(u Term) bool { return t.Era == u.Era && t.N == u.N+1 }

// Uint64 returns the term as one number. These numbers have the same order as the terms, and fit a
// PostgreSQL bigint.
func (t Term) Uint64() uint64 { return uint64(t.Era)<<48 | t.N }

// TermOf is the inverse of Uint64.
func TermOf(v uint64) Term { return Term{Era: uint16(v >> 48), N: v & MaxN} }

// String returns "era.n", such as "1.42", or "none".
func (t Term) String() string {
	if t.IsZero() {
		return "none"
	}
	return strconv.Itoa(int(t.Era)) + "." + strconv.FormatUint(t.N, 10)
}

// ParseTerm is the inverse of String.
func ParseTerm(s string) (Term, error) {
	if s == "none" {
		return Term{}, nil
	}
	era, n, _ := strings.Cut(s, ".")
	e, eraErr := strconv.ParseUint(era, 10, 15)
	c, nErr := strconv.ParseUint(n, 10, 48)
	t := Term{Era: uint16(e), N: c}
	if eraErr != nil || nErr != nil || t.String() != s {
		return Term{}, fmt.Errorf("leader: %q is no term: a term is era.n, as in 1.42, or none", s)
	}
	return t, nil
}
