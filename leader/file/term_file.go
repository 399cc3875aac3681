package file

import (
	"fmt"
	"strings"
	"time"

	"github.com/pglatch/pglatch/leader/driver"
)

// termSuffix is appended to the record's name for the file of terms.
const termSuffix = ".term"

// A termFile stores the greatest term and its lease. It is written before the record. So terms rise, and a
// leader is waited for, even if the record is lost.
type termFile struct {
	term  driver.Term
	lease time.Duration
}

// readTermFile returns the zero termFile if no Backend of this package ever led.
func readTermFile(path string) (termFile, error) {
	data, _, err := read(path)
	if data == nil || err != nil {
		return termFile{}, err
	}
	l, err := decodeTermFile(data)
	if err != nil {
		return l, &CorruptError{
			path, err.Error(),
			"without it and the record beside it no term is known; stop all processes of the election, and remove both: terms then begin anew", true, false,
		}
	}
	return l, nil
}

func decodeTermFile(data []byte) (termFile, error) {
	text, lease, _ := strings.Cut(strings.TrimSuffix(string(data), "\n"), " ")
	t, err := driver.ParseTerm(text)
	if err != nil {
		return termFile{}, err
	}
	d, err := time.ParseDuration(lease)
	if err != nil {
		return termFile{}, err
	}
	if d <= 0 || d > driver.MaxLeaseDuration || t.N == driver.MaxN {
		return termFile{}, fmt.Errorf("%q is out of range", data)
	}
	return termFile{t, d}, nil
}

// grown returns the file of terms with at least that term and lease.
func (f termFile) grown(t driver.Term, lease time.Duration) termFile {
	if f.term.Compare(t) > 0 {
		t = f.term
	}
	return termFile{t, max(f.lease, lease)}
}

func (f termFile) encode() []byte { return fmt.Appendf(nil, "%v %v\n", f.term, f.lease) }
