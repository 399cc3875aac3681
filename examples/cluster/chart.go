package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// levels are the columns of a chart, from empty to full.
var levels = []rune("·▁▂▃▄▅▆▇█")

// chart draws the number of visits in each slice of a period, with a mark at one moment.
func chart(from, to, mark time.Time, visits []visit) (bars, below string) {
	const width = 60
	part := max(to.Sub(from)/width, time.Millisecond)
	counts := make([]int, width)
	for _, v := range visits {
		if i := int(v.at.Sub(from) / part); i >= 0 && i < width {
			counts[i]++
		}
	}
	most := max(slices.Max(counts), 1)
	var b strings.Builder
	for _, n := range counts {
		b.WriteRune(levels[(n*(len(levels)-1)+most-1)/most]) // rounds up, so that one visit shows
	}
	at := min(int(mark.Sub(from)/part), width-1)
	return b.String(), fmt.Sprintf("%*s^ kill -9; each column is %d ms", at, "", part.Milliseconds())
}
