// Package lockcmd contains the commands that take advisory locks, and those that show them.
package lockcmd

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pglatch/pglatch/cmd/internal/lookup"
	"github.com/pglatch/pglatch/cmd/internal/overview"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

// A filter selects and sorts the keys to show.
type filter struct {
	app        *program.App
	waiting    bool
	holder     string
	longerThan time.Duration
	sort       string
}

// addFilter adds the flags of a filter to cmd.
func addFilter(app *program.App, cmd *cobra.Command, order string) *filter {
	f := &filter{app: app}
	app.AddNamespaceFilter(cmd)
	flags := cmd.Flags()
	flags.BoolVar(&f.waiting, "waiting", false, "only keys with waiters")
	flags.StringVar(&f.holder, "app", "", "only keys of holders or waiters whose service, host or application_name has this `text`")
	flags.DurationVar(&f.longerThan, "longer-than", 0, "only keys that are held, or waited for, longer than this")
	flags.StringVar(&f.sort, "sort", order, "`order`: "+strings.Join(overview.Orders(), ", "))
	program.Only(flags, "sort", overview.Orders()...)
	return f
}

// filters reports whether the flags select some of the keys.
func (f *filter) filters() bool {
	return f.waiting || f.holder != "" || f.longerThan > 0 || len(f.app.Filtered()) > 0
}

func (f *filter) check() error { return program.NotNegative("longer-than", f.longerThan, "") }

// overview returns the filter from the flags and from the selection by an argument.
func (f *filter) overview(s lookup.Selection) overview.Filter {
	o := s.Filter
	o.Waiting, o.App, o.LongerThan = f.waiting, f.holder, f.longerThan
	for _, name := range f.app.Filtered() {
		o.Namespaces = append(o.Namespaces, name)
		if number, err := strconv.Atoi(name); err == nil {
			if n, ok := f.app.Namespaces().Numbered(number); ok {
				o.Namespaces = append(o.Namespaces, n.Name())
			}
		} else if n, ok := f.app.Namespaces().Named(name); ok {
			o.Namespaces = append(o.Namespaces, strconv.Itoa(n.Number()))
		}
	}
	return o
}

// apply returns the keys to show, and keeps only their locks in v.
func (f *filter) apply(v *lookup.View, s lookup.Selection) []*overview.Row {
	rows := f.overview(s).Apply(v.Rows(s.Known...))
	overview.Sort(rows, f.sort)
	place := map[namespace.Tag]int{}
	for i, r := range rows {
		for _, tag := range r.Tags {
			place[tag] = i
		}
	}
	v.Locks = slices.DeleteFunc(v.Locks, func(l monitor.Lock) bool {
		_, shown := place[l.Tag]
		return !shown
	})
	slices.SortStableFunc(v.Locks, func(l, o monitor.Lock) int { return place[l.Tag] - place[o.Tag] })
	v.Total = len(v.Locks)
	return rows
}
