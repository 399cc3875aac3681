package bench

import "testing"

func BenchmarkZZ(b *testing.B) {
	c := newSQLite(b)
	for _, hot := range []bool{false, true} {
		name := "un"
		if hot {
			name = "hot"
		}
		b.Run(name, func(b *testing.B) {
			measure(b, c, hot, turn/4)
			for b.Loop() {
				s := measure(b, c, hot, turn)
				b.Logf("%.0f/s cpu %.1f p50 %.2f p99 %.2f", s.perSecond, s.cpu, s.p50, s.p99)
			}
		})
	}
}
