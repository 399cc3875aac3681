package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// circumstances returns when and where the tests run. What is not known is left out.
func (o order) circumstances(ctx context.Context) (facts [][2]string) {
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, [2]string{name, value})
		}
	}
	add("date", time.Now().UTC().Format("2006-01-02 15:04 UTC"))
	commit := output(ctx, "git", "rev-parse", "--short=12", "HEAD")
	if output(ctx, "git", "status", "--porcelain", "--untracked-files=no") != "" {
		commit += ", with changes"
	}
	add("commit", commit)
	form, command := "long (PGLATCH_SOAK=1)", "make report"
	switch {
	case o.minutes > 0:
		form, command = fmt.Sprintf("short, repeated for %d minutes", o.minutes), fmt.Sprintf("make report MINUTES=%d", o.minutes)
	case o.short:
		form, command = "short", "make report SHORT=1"
	}
	add("command", command)
	add("form", form)
	add("Go", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	add("PostgreSQL", postgres(ctx, os.Getenv("PGLATCH_TEST_DATABASE_URL")))
	add("kernel", output(ctx, "uname", "-sr"))
	add("processors", fmt.Sprintf("%d × %s", runtime.NumCPU(), field("/proc/cpuinfo", "model name")))
	add("memory", field("/proc/meminfo", "MemTotal"))
	add("load at the start", load())
	return facts
}

func output(ctx context.Context, name string, arguments ...string) string {
	text, err := exec.CommandContext(ctx, name, arguments...).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// postgres asks a server for its version.
func postgres(ctx context.Context, dsn string) (version string) {
	if dsn == "" {
		return ""
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close(ctx) }()
	if err := conn.QueryRow(ctx, "SHOW server_version").Scan(&version); err != nil {
		return ""
	}
	return version
}

// field returns the first value of a name in a file of /proc.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// load returns the load averages of 1, 5 and 15 minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
