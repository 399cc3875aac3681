package report

import (
	"fmt"
	"slices"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
)

// A Figure is a performance goal and its result.
type Figure struct {
	Text     string  `json:"figure"`
	System   string  `json:"system"`
	Goal     float64 `json:"goal"`
	AtMost   bool    `json:"at_most,omitempty"` // otherwise at least
	Got      float64 `json:"got"`
	Ceiling  float64 `json:"ceiling,omitempty"` // throughput of batches without any guard; 0 = not measured
	Measured bool    `json:"measured"`
	Pass     bool    `json:"pass"`
}

// Judge compares the rows with the goals.
func (rows Rows) Judge() []Figure {
	var all []Figure
	all = append(all, rows.throughput()...)
	all = append(all, rows.fairness()...)
	return append(all, rows.stocks()...)
}

// figure returns a Figure for a result that was measured or not.
func figure(text, of string, goal float64, atMost bool, got float64, measured bool) Figure {
	pass := measured && (atMost && got <= goal || !atMost && got >= goal)
	return Figure{Text: text, System: of, Goal: goal, AtMost: atMost, Got: got, Measured: measured, Pass: pass}
}

// faster compares two systems by the ratio of their throughputs.
func (rows Rows) faster(text, workload string, workers int, of, than string, goal float64) Figure {
	a, okA := rows.find(workload, of, workers, 0)
	b, okB := rows.find(workload, than, workers, 0)
	f := figure(text+", × "+than, of, goal, false, ratio(a.Rounds, b.Rounds), okA && okB)
	if top, ok := rows.find(workload, system.Ceiling, workers, 0); ok && okB {
		f.Ceiling = ratio(top.Rounds, b.Rounds)
	}
	return f
}

func (rows Rows) throughput() []Figure {
	return []Figure{
		rows.faster("random keys, 1 worker", Random, 1, system.Dedicated, system.HandWritten, 1),
		rows.faster("random keys, 1 worker", Random, 1, system.Multiplexed1, system.HandWritten, 1),
		rows.faster("random keys, 8 workers", Random, 8, system.Dedicated, system.HandWritten, 0.95),
		rows.faster("random keys, 64 workers", Random, 64, system.Dedicated, system.HandWritten, 0.95),
		rows.faster("random keys, 512 workers", Random, 512, system.Dedicated, system.HandWritten, 0.95),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.Ceiling, 0.85),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.HandWritten, 5.5),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.RedisLock, 8),
		rows.faster("random keys, 64 workers", Random, 64, system.Multiplexed1, system.PGBench, 4),
		rows.faster("random keys, 512 workers", Random, 512, system.Multiplexed2, system.Ceiling, 0.8),
		rows.faster("random keys, 512 workers", Random, 512, system.Multiplexed2, system.HandWritten, 9),
		rows.faster("one hot key, 64 workers", Hot, 64, system.Dedicated, system.HandWritten, 170),
		rows.faster("one hot key, 64 workers", Hot, 64, system.Multiplexed1, system.HandWritten, 170),
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
	theirs, okTheirs := rows.find(Zipf, system.HandWritten, 64, 0)
	for _, of := range []string{system.Dedicated, system.Multiplexed1} {
		ours, ok := rows.find(Zipf, of, 64, 0)
		all = append(all, figure("Zipf mix, p99 of the wait, × "+system.HandWritten, of, 1, true, ratio(ours.RoundsP99, theirs.RoundsP99), ok && okTheirs))
	}
	return all
}

func (rows Rows) stocks() []Figure {
	var all []Figure
	for _, goal := range []struct {
		of      string
		locks   int
		seconds float64 // 0 = no limit
		conns   float64
		bytes   float64
	}{{system.Multiplexed1, 10_000, 1, 2, 1023}, {system.Multiplexed1, 100_000, 0.5, 2, 800}, {system.Multiplexed2, 1_000_000, 0, 8, 800}} {
		r, ok := rows.find(Hold, goal.of, 0, goal.locks)
		text := fmt.Sprintf("%d locks held, ", goal.locks)
		if goal.seconds > 0 {
			all = append(all,
				figure(text+"seconds to take them", goal.of, goal.seconds, true, r.TakenSeconds, ok),
				figure(text+"seconds to give them back", goal.of, goal.seconds, true, r.ReleasedSeconds, ok))
		}
		all = append(all,
			figure(text+"connections", goal.of, goal.conns, true, float64(r.Connections), ok),
			figure(text+"bytes of heap for each", goal.of, goal.bytes, true, float64(r.HeapPerLock), ok))
	}
	with, okWith := rows.find(Beside, system.Multiplexed1, 64, 10_000)
	without, okWithout := rows.find(Beside, system.Multiplexed1, 64, 0)
	return append(all, figure("cycles beside 10,000 held locks, × beside none", system.Multiplexed1, 0.9, false,
		ratio(with.Rounds, without.Rounds), okWith && okWithout))
}
