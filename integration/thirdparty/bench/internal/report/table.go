package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// A column is a load of the throughput table.
type column struct {
	workload string
	workers  int
	title    string
}

func columns() []column {
	return []column{
		{Random, 1, "random, 1"},
		{Random, 8, "8"},
		{Random, 64, "64"},
		{Random, 512, "512 workers"},
		{Hot, 8, "hot, 8"},
		{Hot, 64, "64"},
		{Hot, 512, "512 workers"},
		{TwoProcesses, 64, "hot, 2 × 32"},
		{Zipf, 64, "Zipf, 64"},
	}
}

// Markdown returns the report for readers.
func (r *Report) Markdown() string {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "%s, %d cores, %s; %s; load before %s; %d rounds of %s each.\n", m.CPU, m.Cores, m.OS, m.Date, m.Load, r.Rounds, r.Duration)
	var versions []string
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		versions = append(versions, name+" "+m.Versions[name])
	}
	fmt.Fprintf(&b, "%s.\n\n", strings.Join(versions, ", "))
	r.loads(&b, "Cycles of lock and unlock per second (and the ratio to the loop by hand)", func(row Row) string {
		return fmt.Sprintf("%s (%s×)", number(row.OpsPerS), decimal(row.Ratio))
	})
	r.loads(&b, "Latency, p50 / p99: of the cycle; of the wait for hot, 2 × 32 and Zipf", func(row Row) string {
		return duration(row.P50US) + " / " + duration(row.P99US)
	})
	r.twoProcesses(&b)
	r.stocks(&b)
	r.beside(&b)
	r.losses(&b)
	r.missing(&b)
	r.figures(&b)
	return b.String()
}

// loads writes a table with a row per system and a column per load.
func (r *Report) loads(b *strings.Builder, title string, cell func(Row) string) {
	var present []column
	for _, c := range columns() {
		if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Workload == c.workload && row.Workers == c.workers }) {
			present = append(present, c)
		}
	}
	if len(present) == 0 {
		return
	}
	heads := []string{"system"}
	for _, c := range present {
		heads = append(heads, c.title)
	}
	header(b, title, heads...)
	for _, name := range r.Order {
		cells := []string{r.Titles[name]}
		for _, c := range present {
			row, ok := r.Rows.find(c.workload, name, c.workers, 0)
			if ok {
				cells = append(cells, cell(row))
			} else {
				cells = append(cells, "NOT RUN")
			}
		}
		line(b, cells...)
	}
	b.WriteByte('\n')
}

func (r *Report) twoProcesses(b *strings.Builder) {
	r.details(b, TwoProcesses, "One hot key, two processes", func(row Row) []string {
		var shares []string
		for _, s := range row.Shares {
			shares = append(shares, fmt.Sprintf("%.0f %%", 100*s))
		}
		return []string{strings.Join(shares, " / "), duration(row.P50US), duration(row.P99US), duration(row.P999US), duration(row.MaxUS), fmt.Sprint(row.Connections)}
	}, "shares of grants", "wait p50", "p99", "p99.9", "maximum", "connections")
}

func (r *Report) stocks(b *strings.Builder) {
	r.details(b, Hold, "Locks taken and held at one time", func(row Row) []string {
		return []string{
			fmt.Sprintf("%.2f s", row.TakenSeconds), seconds(row.ReleasedSeconds), fmt.Sprint(row.Connections), fmt.Sprintf("%d B", row.HeapPerLock),
			fmt.Sprintf("%.0f MB", float64(row.RSSBytes)/1e6), fmt.Sprintf("%.0f MB", float64(row.ServerBytes)/1e6),
		}
	}, "taken in", "given back in", "connections", "Go heap for each", "client RSS", "server memory")
}

// seconds formats a time that was measured or not.
func seconds(s float64) string {
	if s == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f s", s)
}

func (r *Report) beside(b *strings.Builder) {
	r.details(b, Beside, "Cycles on random keys by 64 workers, beside locks that are held", func(row Row) []string {
		return []string{number(row.OpsPerS), duration(row.P50US), duration(row.P99US), fmt.Sprint(row.Connections)}
	}, "per second", "p50", "p99", "connections")
}

func (r *Report) losses(b *strings.Builder) {
	r.details(b, Loss, "From pg_terminate_backend of the session to each holder's knowing", func(row Row) []string {
		return []string{duration(row.P50US), duration(row.P99US), duration(row.MaxUS)}
	}, "p50", "p99", "maximum")
}

// details writes a table with a line per row of a workload.
func (r *Report) details(b *strings.Builder, workload, title string, cells func(Row) []string, heads ...string) {
	var lines [][]string
	locks := slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Workload == workload && row.Locks > 0 })
	for _, row := range r.Rows {
		if row.Workload != workload {
			continue
		}
		l := []string{r.Titles[row.System]}
		if locks {
			l = append(l, number(float64(row.Locks)))
		}
		if row.NotRun != "" {
			l = append(l, "NOT RUN")
		} else {
			l = append(l, cells(row)...)
		}
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return
	}
	if locks {
		heads = append([]string{"locks"}, heads...)
	}
	heads = append([]string{"system"}, heads...)
	header(b, title, heads...)
	for _, l := range lines {
		for len(l) < len(heads) {
			l = append(l, "")
		}
		line(b, l...)
	}
	b.WriteByte('\n')
}

func (r *Report) figures(b *strings.Builder) {
	header(b, "Figures to reach", "figure", "system", "goal", "got", "ceiling", "")
	for _, f := range r.Figures {
		sign, verdict := "≥", "PASS"
		if f.AtMost {
			sign = "≤"
		}
		switch {
		case !f.Measured:
			verdict = "NOT RUN"
		case !f.Pass:
			verdict = fmt.Sprintf("SHORT: %s of the goal", percent(f.Got/f.Goal))
		}
		top := ""
		if f.Ceiling > 0 {
			top = decimal(f.Ceiling)
		}
		line(b, f.Text, f.System, sign+" "+decimal(f.Goal), decimal(f.Got), top, verdict)
	}
}

// missing writes why systems were not run.
func (r *Report) missing(b *strings.Builder) {
	var reasons []string
	where := map[string][]string{}
	for _, row := range r.Rows {
		if row.NotRun == "" {
			continue
		}
		reason := row.System + ": " + strings.Join(strings.Fields(row.NotRun), " ")
		if where[reason] == nil {
			reasons = append(reasons, reason)
		}
		where[reason] = append(where[reason], fmt.Sprintf("%s %d", row.Workload, max(row.Locks, row.Workers)))
	}
	for _, reason := range reasons {
		fmt.Fprintf(b, "NOT RUN: %s (%s)\n\n", reason, strings.Join(where[reason], ", "))
	}
}
