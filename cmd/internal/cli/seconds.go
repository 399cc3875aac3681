package cli

import (
	"regexp"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A seconds is the value of a duration flag that also accepts a bare number, of seconds.
type seconds struct{ pflag.Value }

var bareNumber = regexp.MustCompile(`^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)$`)

// Set parses 90s, 1m30s, 90 and 0.5.
func (s seconds) Set(text string) error {
	if bareNumber.MatchString(text) {
		text += "s"
	}
	return s.Value.Set(text)
}

// takeSeconds lets the duration flags of a command accept bare numbers. In the help, pflag shows a
// flag's default unless it is zero; it recognizes neither the zero of these flags nor an empty map.
func takeSeconds(cmd *cobra.Command) {
	each := func(f *pflag.Flag) {
		if _, done := f.Value.(seconds); !done && f.Value.Type() == "duration" {
			f.Value = seconds{f.Value}
			if f.DefValue == "0s" {
				f.DefValue = "0"
			}
		}
		if f.Value.Type() == "stringToString" && f.DefValue == "[]" {
			f.DefValue = ""
		}
	}
	cmd.Flags().VisitAll(each)
	cmd.PersistentFlags().VisitAll(each)
}
