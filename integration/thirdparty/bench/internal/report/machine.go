package report

import (
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// A Machine describes the hardware and software of a run.
type Machine struct {
	CPU      string            `json:"cpu"`
	Cores    int               `json:"cores"`
	OS       string            `json:"os"`
	Date     string            `json:"date"`
	Load     string            `json:"load"` // average of 1, 5 and 15 minutes, before
	Versions map[string]string `json:"versions"`
}

// peers returns the modules whose versions are reported.
func peers() []string {
	return []string{
		"github.com/jackc/pgx/v5", "cirello.io/pglock", "github.com/bsm/redislock", "github.com/go-redsync/redsync/v4",
		"github.com/redis/go-redis/v9", "go.etcd.io/etcd/client/v3", "github.com/riverqueue/river",
	}
}

// ThisMachine describes this machine. servers are the versions of the servers.
func ThisMachine(servers map[string]string) Machine {
	m := Machine{
		CPU: after("/proc/cpuinfo", "model name"), Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH,
		Date: time.Now().UTC().Format(time.RFC3339), Load: loadAverage(), Versions: map[string]string{"go": runtime.Version()},
	}
	maps.Copy(m.Versions, servers)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if slices.Contains(peers(), module.Path) {
				m.Versions[module.Path] = module.Version
			}
		}
	}
	return m
}

// after returns the text after a name and a colon in a file of /proc.
func after(path, name string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), name)
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(strings.TrimLeft(line, " \t:"))
}

func loadAverage() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(text))
	return strings.Join(fields[:min(3, len(fields))], " ")
}
