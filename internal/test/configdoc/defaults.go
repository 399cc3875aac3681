package configdoc

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// Check fails if the comments of a configuration say other defaults than the code sets. config is what the defaulting
// function of the package in the current directory makes of a configuration that has no values but its required ones.
//
// A comment with a number, a duration or a fraction of another field must have the value in config. With any other text
// the field must be zero, so that the text alone says what happens. A field that got a value must have a comment.
func Check(tb testing.TB, config any, required ...string) {
	tb.Helper()
	value := reflect.ValueOf(config)
	for _, wrong := range check(tb, ".", value, required) {
		assert.Fail(tb, wrong)
	}
}

func check(tb testing.TB, dir string, config reflect.Value, required []string) (wrong []string) {
	tb.Helper()
	for _, f := range Fields(tb, dir, config.Type().Name()) {
		for _, name := range f.Names {
			if slices.Contains(required, name) || f.Default == Required {
				continue
			}
			field := config.FieldByName(name)
			want, ok := parseDefault(f.Default, field.Type(), config)
			switch {
			case f.Default == "" && f.Type != "bool" && !field.IsZero():
				wrong = append(wrong, fmt.Sprintf("%s is set to %v: its comment has to say so", name, field))
			case ok && want != number(field):
				wrong = append(wrong, fmt.Sprintf("%s is set to %v, and its comment says %q", name, field, f.Default))
			case !ok && isNumber(field.Type()) && !field.IsZero():
				wrong = append(wrong, fmt.Sprintf("%s is set to %v, and its comment says %q: write the value", name, field, f.Default))
			}
		}
	}
	return wrong
}

func isNumber(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Float64 }

func number(v reflect.Value) float64 {
	switch {
	case v.CanInt():
		return float64(v.Int())
	case v.CanUint():
		return float64(v.Uint())
	case v.CanFloat():
		return v.Float()
	}
	return 0
}

var (
	amount   = regexp.MustCompile(`^([\d,.]+)(?: (ms|s|min|minutes|h|hours|KiB|MiB))?(?: [A-Z][a-z]+)?(?:$|[:,(])`)
	fraction = regexp.MustCompile(`^([A-Z]\w+)(?:/(\d+))?$`)
	scale    = map[string]float64{
		"ms": float64(time.Millisecond), "s": float64(time.Second), "min": float64(time.Minute), "minutes": float64(time.Minute),
		"h": float64(time.Hour), "hours": float64(time.Hour), "KiB": 1 << 10, "MiB": 1 << 20, "": 1,
	}
)

// parseDefault returns the number that a text stands for, if it is one.
func parseDefault(text string, typ reflect.Type, config reflect.Value) (value float64, ok bool) {
	if !isNumber(typ) {
		return 0, false
	}
	if m := amount.FindStringSubmatch(text); m != nil {
		n, err := strconv.ParseFloat(strings.ReplaceAll(m[1], ",", ""), 64)
		return n * scale[m[2]], err == nil
	}
	m := fraction.FindStringSubmatch(text)
	if m == nil || !config.FieldByName(m[1]).IsValid() {
		return 0, false
	}
	part := 1.0
	if m[2] != "" {
		part, _ = strconv.ParseFloat(m[2], 64)
	}
	return float64(int64(number(config.FieldByName(m[1])) / part)), true
}
