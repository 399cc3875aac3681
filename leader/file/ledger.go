package file

import (
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// ledgerSuffix is what the ledger's name has after that of the record.
const ledgerSuffix = ".term"

// A ledger is the file of the greatest term and its lease. It is written before the
// record is, so that terms rise and a leader is waited for when the record is lost.
type ledger struct {
	term  driver.Term
	lease time.Duration
}

// readLedger returns the zero ledger if nobody of ours ever led.
func readLedger(path string) (ledger, error) {
	data, _, err := read(path)
	if data == nil || err != nil {
		return ledger{}, err
	}
	l, err := decodeLedger(data)
	if err != nil {
		return l, &CorruptError{
			path, err.Error(),
			"without it and the record beside it no term is known; stop all processes of the election, and remove both: terms then begin anew", true, false,
		}
	}
	return l, nil
}

func decodeLedger(data []byte) (ledger, error) {
	text, lease, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), " ")
	t, err := driver.ParseTerm(text)
	if err != nil {
		return ledger{}, err
	}
	d, err := time.ParseDuration(lease)
	if err != nil {
		return ledger{}, err
	}
	if d <= 0 || d > driver.MaxLeaseDuration || t.N == driver.MaxN {
		return ledger{}, fmt.Errorf("%q is out of range", data)
	}
	return ledger{t, d}, nil
}

// grown is the ledger with at least that term and lease.
func (l ledger) grown(t driver.Term, lease time.Duration) ledger {
	if l.term.Compare(t) > 0 {
		t = l.term
	}
	return ledger{t, max(l.lease, lease)}
}

func (l ledger) encode() []byte { return fmt.Appendf(nil, "%v %v\n", l.term, l.lease) }
