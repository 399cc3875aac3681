package pgdsn

import "strings"

const spaces = " \t\n\r\v\f"

// keywordError finds what is wrong with a list of keyword=value that could not be
// parsed.
func keywordError(dsn string) *Error {
	if strings.Contains(dsn, "://") || !strings.Contains(dsn, "=") {
		return &Error{"neither a URL, which begins with postgres:// or postgresql://, nor a list like host=… dbname=…", 1}
	}
	for rest := dsn; ; {
		rest = strings.TrimLeft(rest, spaces)
		if rest == "" {
			return &Error{Problem: "not a list like host=… dbname=…"}
		}
		at := len(dsn) - len(rest) + 1
		key, value, ok := strings.Cut(rest, "=")
		key = strings.TrimRight(key, spaces)
		if !ok || key == "" || strings.ContainsAny(key, spaces) {
			return &Error{"a word that is no keyword=value: a value with spaces in it must be in single quotes", at}
		}
		value = strings.TrimLeft(value, spaces)
		at = len(dsn) - len(value) + 1
		if rest, ok = afterValue(value); !ok {
			return &Error{"a quote that nothing closes: a quote inside a value is \\'", at}
		}
	}
}

// afterValue returns what stands behind the value that s begins with; false if its
// quote is not closed.
func afterValue(s string) (rest string, ok bool) {
	quoted := strings.HasPrefix(s, "'")
	if quoted {
		s = s[1:]
	}
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case quoted && s[i] == '\'':
			return s[i+1:], true
		case !quoted && strings.IndexByte(spaces, s[i]) >= 0:
			return s[i:], true
		}
	}
	return "", !quoted
}
