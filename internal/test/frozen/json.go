package frozen

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// JSON returns the members that values of a type have in JSON, with their kinds: "answer.process.pid: number". It fills
// a value, and looks at what encoding/json writes. name is what the value is called.
func JSON[T any](tb testing.TB, name string) (facts []string) {
	tb.Helper()
	var value T
	fill(reflect.ValueOf(&value).Elem(), nil)
	text, err := json.Marshal(value)
	require.NoError(tb, err)
	var document any
	require.NoError(tb, json.Unmarshal(text, &document))
	return flatten(document, name)
}

// fill sets every exported field, with one element in each slice and map. A type inside itself stays zero.
func fill(v reflect.Value, above []reflect.Type) {
	t := v.Type()
	if t == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(1)
	case reflect.String:
		v.SetString("x")
	case reflect.Pointer:
		if !slices.Contains(above, t) {
			v.Set(reflect.New(t.Elem()))
			fill(v.Elem(), append(slices.Clone(above), t))
		}
	case reflect.Slice:
		if !slices.Contains(above, t) {
			v.Set(reflect.MakeSlice(t, 1, 1))
			fill(v.Index(0), append(slices.Clone(above), t))
		}
	case reflect.Map:
		key, element := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		fill(key, above)
		fill(element, above)
		v.Set(reflect.MakeMap(t))
		v.SetMapIndex(key, element)
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).IsExported() {
				fill(v.Field(i), above)
			}
		}
	}
}

func flatten(value any, at string) (facts []string) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			facts = append(facts, flatten(v[name], at+"."+name)...)
		}
		return facts
	case []any:
		for _, element := range v {
			facts = append(facts, flatten(element, at+"[]")...)
		}
		return facts
	case float64:
		return []string{at + ": number"}
	case nil:
		return []string{at + ": null"}
	}
	return []string{fmt.Sprintf("%s: %T", at, value)}
}
