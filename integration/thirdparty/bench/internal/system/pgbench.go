package system

import (
	"bufio"
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/pglatch/pglatch/internal/histogram"
)

// pgBench makes PostgreSQL's own load generator send the two statements, prepared, as fast as
// one at a time per connection allows. Nothing checks its exclusion.
type pgBench struct {
	env         Env
	connections int
}

func openPGBench(_ context.Context, env Env) (Client, error) { return &pgBench{env: env}, nil }

const (
	pgbenchRandom = "\\set key random(0, 1073741823)\n"
	pgbenchHot    = "\\set key 1\n"
	pgbenchCycle  = "SELECT pg_advisory_lock(1, :key);\nSELECT pg_advisory_unlock(1, :key);\n"
	pgbenchSample = 0.2 // of the latencies, so that its log costs little
)

var pgbenchTPS = regexp.MustCompile(`(?m)^tps = ([0-9.]+) \(without initial connection time\)`)

// Run runs a pgbench for whole seconds. Each worker is a connection, and their number is
// limited to the pool size of the other systems.
func (p *pgBench) Run(ctx context.Context, workers int, hot bool, d time.Duration) (float64, *histogram.Histogram, error) {
	p.connections = min(workers, p.env.Conns)
	dir, err := os.MkdirTemp("", "pglatch-pgbench-")
	if err != nil {
		return 0, nil, err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	script := pgbenchRandom + pgbenchCycle
	if hot {
		script = pgbenchHot + pgbenchCycle
	}
	file := filepath.Join(dir, "script.sql")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return 0, nil, err
	}
	seconds := int(math.Ceil(d.Seconds()))
	if p.connections > 8 { // its clock also runs while it connects
		seconds++
	}
	cmd := exec.CommandContext(ctx, p.env.Addresses[PGBenchTools], "-n", "-M", "prepared", "-f", file,
		"-c", strconv.Itoa(p.connections), "-j", strconv.Itoa(min(p.connections, runtime.NumCPU())), "-T", strconv.Itoa(seconds),
		"-l", "--log-prefix", filepath.Join(dir, "log"), "--sampling-rate", strconv.FormatFloat(pgbenchSample, 'g', -1, 64), p.env.Addresses[Postgres])
	cmd.Env = append(os.Environ(), "PGAPPNAME="+p.env.Tag)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, nil, fmt.Errorf("pgbench: %w: %s", err, out)
	}
	found := pgbenchTPS.FindSubmatch(out)
	if found == nil {
		return 0, nil, fmt.Errorf("pgbench printed no tps: %s", out)
	}
	tps, err := strconv.ParseFloat(string(found[1]), 64)
	if err != nil {
		return 0, nil, err
	}
	latencies, err := readLatencies(dir)
	return tps, latencies, err
}

// readLatencies reads the third column, microseconds, of pgbench's logs.
func readLatencies(dir string) (*histogram.Histogram, error) {
	logs, err := filepath.Glob(filepath.Join(dir, "log.*"))
	if err != nil {
		return nil, err
	}
	h := new(histogram.Histogram)
	for _, path := range logs {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) < 3 {
				continue
			}
			if us, err := strconv.Atoi(fields[2]); err == nil {
				h.Add(time.Duration(us) * time.Microsecond)
			}
		}
		if err := lines.Err(); err != nil {
			return nil, err
		}
		f.Close() //nolint:errcheck,gosec // only read from
	}
	return h, nil
}

func (p *pgBench) Cycle(context.Context, int, uint32, func()) error { return errLoadOnly }

func (p *pgBench) Footprint(context.Context) (Footprint, error) {
	return Footprint{Connections: p.connections}, nil
}

func (p *pgBench) Close() error { return nil }
