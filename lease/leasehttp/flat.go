package leasehttp

import (
	"slices"
	"strconv"
	"strings"
)

// A flatBody is the body of a request or an answer: a JSON object, nearly always of
// plain strings and integers only. set takes one field of such an object; false = it
// is not one that can be taken so.
type flatBody interface {
	set(name, value string, quoted bool) bool
}

// flat reads a JSON object the short way, which costs a fifth of encoding/json: one of
// plain strings and integers, without spaces, as our own client and server write it. At
// anything else it returns false, and encoding/json decides; it never takes what that
// would not take, or takes for something else. What set is given is a part of data, which
// is small for that reason too: whoever keeps a part keeps it all.
func flat(data string, set func(name, value string, quoted bool) bool) bool {
	if len(data) > flatMost {
		return false
	}
	rest, ok := strings.CutPrefix(data, "{")
	var seen [flatFields]string
	for n := 0; ok; n++ {
		var name, value string
		if name, rest, ok = plainString(rest); !ok || n == flatFields || slices.Contains(seen[:n], name) {
			return false
		}
		seen[n] = name
		if rest, ok = strings.CutPrefix(rest, ":"); !ok || rest == "" {
			return false
		}
		quoted := rest[0] == '"'
		if quoted {
			value, rest, ok = plainString(rest)
		} else {
			value, rest, ok = plainInteger(rest)
		}
		if !ok || !set(name, value, quoted) {
			return false
		}
		if rest == "}" {
			return true
		}
		rest, ok = strings.CutPrefix(rest, ",")
	}
	return false
}

const (
	flatMost   = 1 << 10
	flatFields = 16 // more than any body has
)

// plainString cuts a string of ASCII without escapes.
func plainString(s string) (value, rest string, ok bool) {
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return s[1:i], s[i+1:], true
		case c == '\\' || c < ' ' || c > '~':
			return "", s, false
		}
	}
	return "", s, false
}

// plainInteger cuts an integer that is not negative.
func plainInteger(s string) (value, rest string, ok bool) {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	if n == 0 || n > 1 && s[0] == '0' {
		return "", s, false
	}
	return s[:n], s[n:], true
}

func setString(field *string, value string, quoted bool) bool {
	*field = value
	return quoted
}

func setInteger(field *int64, value string, quoted bool) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	*field = n
	return err == nil && !quoted
}

func setToken(field *uint64, value string, quoted bool) bool {
	n, err := strconv.ParseUint(value, 10, 64)
	*field = n
	return err == nil && !quoted
}
