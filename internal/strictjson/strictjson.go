// Package strictjson decodes JSON, and refuses what another JSON reader could interpret differently.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// An Error is a body that encoding/json accepts and another reader may interpret differently.
type Error struct{ text string }

func (e *Error) Error() string { return e.text }

func refuse(format string, args ...any) error { return &Error{fmt.Sprintf(format, args...)} }

// Decode decodes data into body, a pointer. It refuses unknown names, names in another case, repeated names, and
// halves of surrogate pairs, with an *Error. Other errors are those of encoding/json.
func Decode(data []byte, body any) error {
	err := json.Unmarshal(data, body)
	if err == nil && IsCanonical(data, body) {
		return nil
	}
	if odd := Check(data, body); odd != nil {
		return odd
	}
	return err
}

// IsCanonical reports whether data is exactly the output of encoding/json for body, like requests
// of this module's client. Then it has none of the flaws that Check looks for. Check would
// cost a tenth of the time of client and server for a request.
func IsCanonical(data []byte, body any) bool {
	again, err := json.Marshal(body)
	return err == nil && bytes.Equal(again, data)
}

// Check returns an *Error if Decode refuses data for a flaw that encoding/json accepts.
func Check(data []byte, body any) error {
	if err := checkNames(data, body); err != nil {
		return err
	}
	if loneSurrogate(data) {
		return refuse(`the body has half of a surrogate pair (\ud800 to \udfff)`)
	}
	return nil
}

// An open is an unclosed object or array of a body, and the type it is read into.
type open struct {
	seen map[string]bool // the names of an object so far; nil for an array
	name string          // the last of them
	into reflect.Type    // nil = not known
}

// inside returns the type of a value in the object or array.
func (o open) inside() reflect.Type {
	switch {
	case o.into == nil:
		return nil
	case o.seen != nil && o.into.Kind() == reflect.Struct:
		f, _ := fieldOf(o.into, o.name)
		if f.Type != nil && f.Type.Kind() == reflect.Pointer {
			return f.Type.Elem()
		}
		return f.Type
	case o.seen == nil && o.into.Kind() == reflect.Slice:
		return o.into.Elem()
	}
	return nil
}

// checkNames refuses names that encoding/json accepts but another reader may interpret differently:
// names in another case, and repeated names. Data that is no JSON object is left to the decoder.
func checkNames(data []byte, body any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	var all []open
	name := true // the next string in the object is a name
	for {
		token, err := d.Token()
		if err != nil {
			return nil //nolint:nilerr // the decoder says it better
		}
		top := len(all) - 1
		switch token {
		case json.Delim('{'), json.Delim('['):
			next := open{into: reflect.TypeOf(body).Elem()}
			if top >= 0 {
				next.into = all[top].inside()
			}
			if token == json.Delim('{') {
				next.seen, name = map[string]bool{}, true
			}
			all = append(all, next)
			continue
		case json.Delim('}'), json.Delim(']'):
			all = all[:top]
			if name = true; top == 0 {
				return nil
			}
			continue
		}
		if top < 0 || all[top].seen == nil {
			continue
		}
		if !name {
			name = true
			continue
		}
		text, _ := token.(string)
		if err := all[top].add(text); err != nil {
			return err
		}
		name = false
	}
}

// add records a name of an object.
func (o *open) add(name string) error {
	if o.seen[name] {
		return refuse("the field %s comes twice", strconv.Quote(name))
	}
	if o.into != nil && o.into.Kind() == reflect.Struct {
		if _, known := fieldOf(o.into, name); !known {
			return refuse("unknown field %s", strconv.Quote(name))
		}
	}
	o.seen[name], o.name = true, name
	return nil
}

// fieldOf returns the field of a body with exactly that name.
func fieldOf(body reflect.Type, name string) (reflect.StructField, bool) {
	for _, f := range reflect.VisibleFields(body) {
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && tag == name {
			return f, true
		}
	}
	return reflect.StructField{}, false
}

// loneSurrogate reports whether JSON has an escape of half a surrogate pair without the other half.
// encoding/json converts it to U+FFFD, so two names would become one.
func loneSurrogate(data []byte) bool {
	for i := 0; i < len(data); i++ {
		if data[i] != '\\' {
			continue
		}
		i++ // skips the escaped byte
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

// escaped returns the UTF-16 unit of the escape behind its backslash; 0 if the escape is of another
// kind.
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
