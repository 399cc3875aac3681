package report

import (
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/bench/internal/system"
)

// A Figure is one that is to be reached.
type Figure struct {
	Text     string  `json:"figure"`
	System   string  `json:"system"`
	Goal     float64 `json:"goal"`
	AtMost   bool    `json:"at_most,omitempty"` // else at least
	Got      float64 `json:"got"`
	Measured bool    `json:"measured"`
	Pass     bool    `json:"pass"`
}

// Judge compares the rows with the figures to reach.
func (rows Rows) Judge() []Figure {
	var all []Figure
	all = append(all, rows.throughput()...)
	all = append(all, rows.fairness()...)
	return append(all, rows.stocks()...)
}

// a figure that was measured or not.
func figure(text, of string, goal float64, atMost bool, got float64, measured bool) Figure {
	pass := measured && (atMost && got <= goal || !atMost && got >= goal)
	return Figure{text, of, goal, atMost, got, measured, pass}
}

// faster is the ratio of throughputs of two systems.
func (rows Rows) faster(text, workload string, workers int, of, than string, goal float64) Figure {
	a, okA := rows.find(workload, of, workers, 0)
	b, okB := rows.find(workload, than, workers, 0)
	return figure(text+", × "+than, of, goal, false, ratio(a.Rounds, b.Rounds), okA && okB)
}

func (rows Rows) throughput() []Figure {
	return []Figure{
		rows.faster("random keys, 1 worker", Random, 1, system.Dedicated, system.HandWritten, 1),
		rows.faster("random keys, 1 worker", Random, 1, system.Multiplexed1, system.HandWritten, 1),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.HandWritten, 8),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.RedisLock, 8),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.PGBench, 4),
		rows.faster("random keys, 512 workers", Random, 512, system.Multiplexed2, system.HandWritten, 15),
		rows.faster("one hot key, 64 workers", Hot, 64, system.Dedicated, system.HandWritten, 200),
		rows.faster("one hot key, 64 workers", Hot, 64, system.Multiplexed1, system.HandWritten, 200),
		rows.faster("one hot key, 64 workers", Hot, 64, system.Multiplexed1, system.RedisLock, 200),
		rows.faster("one hot key, two processes", TwoProcesses, 64, system.Dedicated, system.HandWritten, 20),
		rows.faster("one hot key, two processes", TwoProcesses, 64, system.Multiplexed1, system.HandWritten, 20),
		rows.faster("Zipf mix", Zipf, 64, system.Multiplexed1, system.HandWritten, 3),
	}
}

// maxWait is 20 times the default hand-over budget, in milliseconds.
const maxWait = 200

func (rows Rows) fairness() []Figure {
	var all []Figure
	for _, of := range []string{system.Dedicated, system.Multiplexed1} {
		r, ok := rows.find(TwoProcesses, of, 64, 0)
		smaller := 0.0
		if len(r.Shares) > 0 {
			smaller = 100 * slices.Min(r.Shares)
		}
		all = append(all,
			figure("one hot key, two processes, smaller share in %", of, 40, false, smaller, ok),
			figure("one hot key, two processes, p99.9 of the wait in ms", of, maxWait, true, r.P999US/1000, ok))
	}
	ours, okOurs := rows.find(Zipf, system.Multiplexed1, 64, 0)
	theirs, okTheirs := rows.find(Zipf, system.HandWritten, 64, 0)
	return append(all, figure("Zipf mix, p99 of the wait, × "+system.HandWritten, system.Multiplexed1, 1, true,
		ratio(ours.RoundsP99, theirs.RoundsP99), okOurs && okTheirs))
}

func (rows Rows) stocks() []Figure {
	const of = system.Multiplexed1
	var all []Figure
	for _, goal := range []struct {
		locks   int
		seconds float64
	}{{10_000, 1}, {100_000, 10}} {
		r, ok := rows.find(Hold, of, 0, goal.locks)
		text := fmt.Sprintf("%d locks held, ", goal.locks)
		all = append(all,
			figure(text+"seconds to take them", of, goal.seconds, true, r.TakenSeconds, ok),
			figure(text+"connections", of, 2, true, float64(r.Connections), ok))
		if goal.locks == 10_000 {
			all = append(all, figure(text+"bytes of heap for each", of, 1023, true, float64(r.HeapPerLock), ok))
		}
	}
	return all
}
