package program

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The annotations of flags: the values that the shell offers, and those that Resolve accepts.
const (
	annotationOffered = "offered"
	annotationOnly    = "only"
)

// Offer lets the shell complete an existing flag with values. The flag takes others, too.
func Offer(f *pflag.FlagSet, flag string, values ...string) {
	_ = f.SetAnnotation(flag, annotationOffered, values) // the flag exists
}

// Only is Offer for a flag that takes no other values.
func Only(f *pflag.FlagSet, flag string, values ...string) {
	Offer(f, flag, values...)
	_ = f.SetAnnotation(flag, annotationOnly, values) // the flag exists
}

// Offered returns the values of Offer.
func Offered(flag *pflag.Flag) []string { return flag.Annotations[annotationOffered] }

// checkOnly refuses a value of a flag that takes others only.
func checkOnly(cmd *cobra.Command) (err error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		values, value := f.Annotations[annotationOnly], f.Value.String()
		if err == nil && values != nil && value != f.DefValue && !slices.Contains(values, value) {
			err = UsageError("--%s is %q: use %s", f.Name, value, oneOf(values))
		}
	})
	return err
}

func oneOf(values []string) string {
	if len(values) == 2 {
		return values[0] + " or " + values[1]
	}
	return strings.Join(values, ", ")
}

// Positive returns an error unless d, the value of a flag, is positive.
func Positive(flag string, d time.Duration) error {
	if d <= 0 {
		return UsageError("--%s is %v: use a positive duration", flag, d)
	}
	return nil
}

// NotNegative is Positive for a flag that can be 0. zero completes the error with what 0 means; it can be "".
func NotNegative(flag string, d time.Duration, zero string) error {
	if d < 0 {
		return UsageError("--%s is %v: use a positive duration%s", flag, d, zero)
	}
	return nil
}

// AtLeastOne returns an error unless n, the value of a flag, is 1 or more.
func AtLeastOne[N int | int32 | int64](flag string, n N) error {
	if n < 1 {
		return UsageError("--%s is %d: use 1 or more", flag, n)
	}
	return nil
}
