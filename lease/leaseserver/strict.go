package leaseserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/pglatch/pglatch/lease/internal/wire"
)

// checkNames refuses what encoding/json takes and another reader can take for something
// else: names in another case, and names that come twice. What is no JSON object is
// left to the decoder.
func checkNames(data []byte, body any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	var seen []map[string]bool // of each object and array that is open; nil for an array
	name := true               // the next string in the object is a name
	for {
		token, err := d.Token()
		if err != nil {
			return nil //nolint:nilerr // the decoder says it better
		}
		top := len(seen) - 1
		inObject := top >= 0 && seen[top] != nil
		switch token {
		case json.Delim('{'):
			seen, name = append(seen, map[string]bool{}), true
			continue
		case json.Delim('['):
			seen = append(seen, nil)
			continue
		case json.Delim('}'), json.Delim(']'):
			seen = seen[:top]
			if name = true; top == 0 {
				return nil
			}
			continue
		}
		if !inObject {
			continue
		}
		if !name {
			name = true
			continue
		}
		text, _ := token.(string)
		switch {
		case seen[top][text]:
			return wire.Refuse(wire.TypeInvalid, fmt.Sprintf("the field %s comes twice", strconv.Quote(text)))
		case top == 0 && !hasField(body, text):
			return wire.Refuse(wire.TypeInvalid, fmt.Sprintf("unknown field %s", strconv.Quote(text)))
		}
		seen[top][text], name = true, false
	}
}

// hasField reports whether a body has a field of that very name.
func hasField(body any, name string) bool {
	for _, f := range reflect.VisibleFields(reflect.TypeOf(body).Elem()) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && tag == name {
			return true
		}
	}
	return false
}

// loneSurrogate reports whether JSON has an escape of half a surrogate pair without
// the other, which encoding/json makes U+FFFD: two names would become one.
func loneSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++ // what is escaped
		unit := escaped(data[i:])
		switch {
		case unit < 0xd800 || unit > 0xdfff:
		case unit >= 0xdc00:
			return true
		default:
			i += len("uXXXX")
			if i >= len(data) || data[i] != '\\' {
				return true
			}
			i++
			if low := escaped(data[i:]); low < 0xdc00 || low > 0xdfff {
				return true
			}
		}
	}
	return false
}

// escaped is the unit of UTF-16 that an escape stands for, behind its backslash; 0 if
// it is of another kind.
func escaped(data []byte) uint64 {
	if len(data) < len("uXXXX") || data[0] != 'u' {
		return 0
	}
	unit, err := strconv.ParseUint(string(data[1:5]), 16, 16)
	if err != nil {
		return 0
	}
	return unit
}
