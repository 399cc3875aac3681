package file

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/pglatch/pglatch/leader/driver"
)

const (
	version   = 1       // version of the format
	maxRecord = 1 << 16 // maximum bytes of a file
)

// A record is the content of the file.
type record struct {
	Version int `json:"version,omitempty"` // 0 = written by hand or by another program

	Holder        string    `json:"holder"`        // "" = nobody leads
	RenewTime     time.Time `json:"renewTime"`     // by the wall clock: for readers, never for expiry
	LeaseDuration duration  `json:"leaseDuration"` // from the renewal on

	AcquireTime time.Time `json:"acquireTime,omitzero"` // by the wall clock, for readers
	PID         int       `json:"pid,omitempty"`        // for readers

	Term        term     `json:"term,omitzero"`         // of the present or last holder
	Incarnation string   `json:"incarnation,omitempty"` // random; one leadership of one Backend
	Released    bool     `json:"released,omitempty"`    // the last leadership ended in good order
	Clock       string   `json:"clock,omitempty"`       // the clock of ClockTime
	ClockTime   duration `json:"clockTime,omitempty"`   // time of the renewal
}

// decode parses a record that encode or another program wrote.
func decode(path string, data []byte) (record, *CorruptError) {
	var wire struct {
		record
		Holder *string `json:"holder"` // required: an empty object is not a free leadership
	}
	corrupt := func(reason string) (record, *CorruptError) {
		return record{}, &CorruptError{Path: path, Reason: reason, Remedy: "nothing was changed; remove it or restore its text, or use WithRepair"}
	}
	switch {
	case len(data) == 0:
		return corrupt("it is empty")
	case len(data) > maxRecord:
		return corrupt(fmt.Sprintf("it is longer than %d bytes", maxRecord))
	case !utf8.Valid(data):
		return corrupt("it is no UTF-8")
	}
	err := json.Unmarshal(data, &wire)
	if v := wire.Version; v > version { // its other fields may be of other types
		return record{}, &CorruptError{path, fmt.Sprintf("its version is %d, and %d is the last that is known here", v, version), "use a newer release of this program, or another file", true, false}
	}
	if err != nil {
		return corrupt(err.Error())
	}
	if wire.Holder == nil {
		return corrupt("it has no holder")
	}
	r := wire.record
	r.Holder = *wire.Holder
	if reason := r.invalid(); reason != "" {
		return corrupt(reason)
	}
	return r, nil
}

// invalid returns the problem with a record; "" = none.
func (r record) invalid() string {
	switch {
	case r.Version < 0:
		return fmt.Sprintf("its version is %d", r.Version)
	case r.LeaseDuration < 0 || time.Duration(r.LeaseDuration) > driver.MaxLeaseDuration:
		return fmt.Sprintf("its leaseDuration is %v, and not from 0 to %v", time.Duration(r.LeaseDuration), driver.MaxLeaseDuration)
	case r.Holder != "" && r.LeaseDuration == 0:
		return "it has a holder and no leaseDuration"
	case r.Holder != "" && r.RenewTime.IsZero():
		return "it has a holder and no renewTime"
	case r.ClockTime < 0:
		return fmt.Sprintf("its clockTime is %v", time.Duration(r.ClockTime))
	case r.Term.N == driver.MaxN:
		return fmt.Sprintf("no term can follow its term %v", driver.Term(r.Term))
	}
	return ""
}

func (r record) encode() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", "  ")
	return append(data, '\n'), err
}

// A duration is text in JSON, as in "15s".
type duration time.Duration

func (d duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

func (d *duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	*d = duration(v)
	return err
}

// A term is text in JSON, as in "1.42".
type term driver.Term

func (t term) MarshalText() ([]byte, error) { return []byte(driver.Term(t).String()), nil }

func (t *term) UnmarshalText(text []byte) error {
	v, err := driver.ParseTerm(string(text))
	*t = term(v)
	return err
}
