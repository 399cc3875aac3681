package turnstest

import (
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
)

// An input has the arguments of a function.
type input struct {
	args []*string
	err  error
}

func (in *input) text(i int) string {
	if i >= len(in.args) || in.args[i] == nil {
		return ""
	}
	return *in.args[i]
}

func (in *input) int(i int) int64 {
	n, err := strconv.ParseInt(in.text(i), 10, 64)
	if err != nil {
		in.err = err
	}
	return n
}

func (in *input) bool(i int) bool { return strings.HasPrefix(in.text(i), "t") }

func (in *input) duration(i int) time.Duration {
	seconds, err := strconv.ParseFloat(strings.TrimSuffix(in.text(i), " seconds"), 64)
	if err != nil {
		in.err = err
	}
	return time.Duration(seconds * float64(time.Second)).Round(time.Microsecond)
}

func (in *input) texts(i int) (all []string) {
	in.array(i, &all)
	return all
}

func (in *input) ints(i int) (all []int64) {
	in.array(i, &all)
	return all
}

func (in *input) array(i int, to any) {
	oid := uint32(pgtype.TextArrayOID)
	if _, ok := to.(*[]int64); ok {
		oid = pgtype.Int8ArrayOID
	}
	if err := pgtype.NewMap().Scan(oid, pgtype.TextFormatCode, []byte(in.text(i)), to); err != nil {
		in.err = err
	}
}

// bytes reads hexadecimal digits; "-" is NULL.
func (in *input) bytes(i int) []byte {
	if in.text(i) == "-" {
		return nil
	}
	data, err := hex.DecodeString(in.text(i))
	if err != nil {
		in.err = err
	}
	return append([]byte{}, data...)
}
