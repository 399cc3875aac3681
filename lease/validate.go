package lease

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// longestShown is how many bytes of a refused value an InvalidError shows.
const longestShown = 64

// ValidateName returns an *InvalidError if the name is not valid for a lock. Valid names are 1 to
// MaxName bytes of valid UTF-8 without control characters. No segment between slashes may be "." or
// "..": names appear in URL paths, where clients and proxies resolve these segments, escaped or not
// (RFC 3986, section 6.2.2).
func ValidateName(name string) error {
	if err := validateText("Name", name); err != nil {
		return err
	}
	if strings.Contains(name, ".") {
		for segment := range strings.SplitSeq(name, "/") {
			if segment == "." || segment == ".." {
				return &InvalidError{Field: "Name", Value: show(name), Remedy: `use no segments "." and ".."`}
			}
		}
	}
	return nil
}

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r AcquireRequest) Validate() error {
	return cmp.Or(
		ValidateName(r.Name),
		validateText("Holder", r.Holder),
		validateTTL(r.TTL),
		validateMetadata(r.Metadata),
		validateOptional("IdempotencyKey", r.IdempotencyKey),
		validateDelay("LockDelay", r.LockDelay),
		validateDelay("MinHold", r.MinHold),
		validateLifetime(r.MaxLifetime),
	)
}

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r RenewRequest) Validate() error {
	return cmp.Or(r.Claim.Validate(), validateTTL(r.TTL), validateMetadata(r.Metadata))
}

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r ReleaseRequest) Validate() error {
	return cmp.Or(r.Claim.Validate(), validateOptional("IdempotencyKey", r.IdempotencyKey))
}

// Validate returns an *InvalidError for the first part that is missing or out of
// bounds.
func (c Claim) Validate() error {
	if err := cmp.Or(ValidateName(c.Name), validateText("Holder", c.Holder), validateText("ID", c.ID)); err != nil {
		return err
	}
	if c.Token == 0 || c.Token > MaxToken {
		return &InvalidError{Field: "Token", Value: strconv.FormatUint(c.Token, 10), Remedy: "give the lease's token"}
	}
	return nil
}

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r ListRequest) Validate() error {
	return cmp.Or(
		validateOptional("After", r.After),
		validateOptional("Prefix", r.Prefix),
		notNegative("Limit", int64(r.Limit), strconv.Itoa(r.Limit)),
	)
}

// Validate returns an *InvalidError for the first field that is out of bounds.
func (r SweepRequest) Validate() error {
	return cmp.Or(
		notNegative("Retention", int64(r.Retention), r.Retention.String()),
		notNegative("Limit", int64(r.Limit), strconv.Itoa(r.Limit)),
	)
}

func validateOptional(field, text string) error {
	if text == "" {
		return nil
	}
	return validateText(field, text)
}

func validateText(field, text string) error {
	switch {
	case text == "":
		return &InvalidError{Field: field, Value: "empty", Remedy: "give one"}
	case len(text) > MaxName:
		return &InvalidError{Field: field, Value: show(text), Remedy: fmt.Sprintf("use at most %d bytes", MaxName)}
	case !utf8.ValidString(text):
		return &InvalidError{Field: field, Value: show(text), Remedy: "use valid UTF-8"}
	case strings.ContainsFunc(text, unicode.IsControl):
		return &InvalidError{Field: field, Value: show(text), Remedy: "use no control characters"}
	}
	return nil
}

func validateTTL(ttl time.Duration) error {
	if ttl < MinTTL || ttl > MaxTTL {
		return &InvalidError{Field: "TTL", Value: orMissing(ttl), Remedy: fmt.Sprintf("use %v to %v", MinTTL, MaxTTL)}
	}
	return nil
}

// orMissing formats a TTL for an error.
func orMissing(ttl time.Duration) string {
	if ttl == 0 {
		return "missing or 0"
	}
	return ttl.String()
}

func validateDelay(field string, d time.Duration) error {
	if d < 0 || d > MaxTTL {
		return &InvalidError{Field: field, Value: d.String(), Remedy: fmt.Sprintf("use 0 to %v", MaxTTL)}
	}
	return nil
}

func validateLifetime(d time.Duration) error {
	if d != 0 && (d < MinTTL || d > LongestLifetime) {
		return &InvalidError{Field: "MaxLifetime", Value: d.String(), Remedy: fmt.Sprintf("use %v to %v, or 0 for no bound", MinTTL, LongestLifetime)}
	}
	return nil
}

// isControl reports whether a character of metadata could steer a terminal.
func isControl(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' }

func validateMetadata(metadata map[string]string) error {
	size := 0
	for key, value := range metadata {
		size += len(key) + len(value)
		for _, text := range []string{key, value} {
			if !utf8.ValidString(text) || strings.ContainsFunc(text, isControl) {
				return &InvalidError{Field: "Metadata", Value: show(text), Remedy: "use valid UTF-8, and of the control characters only tab and newline"}
			}
		}
	}
	if size > MaxMetadata {
		return &InvalidError{Field: "Metadata", Value: fmt.Sprintf("%d bytes", size), Remedy: fmt.Sprintf("use at most %d", MaxMetadata)}
	}
	return nil
}

func notNegative(field string, n int64, shown string) error {
	if n < 0 {
		return &InvalidError{Field: field, Value: shown, Remedy: "use 0 for the default, or more"}
	}
	return nil
}

// show quotes text, and cuts it to a length that fits a log line.
func show(text string) string {
	if len(text) > longestShown {
		return fmt.Sprintf("%q… (%d bytes)", text[:longestShown], len(text))
	}
	return strconv.Quote(text)
}
