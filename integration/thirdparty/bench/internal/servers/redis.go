package servers

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// startRedis starts a new Redis on a free loopback port. It stores nothing on disk.
func startRedis(ctx context.Context, dir string) (running, func() error, error) {
	program, err := findRedis(ctx)
	if err != nil {
		return running{}, nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return running{}, nil, err
	}
	cmd := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--dir", dir, "--save", "", "--appendonly", "no", "--maxclients", "4000") //nolint:noctx // stop ends it
	cmd.Args[0] = "redis-server"                                                                                                                  // the program acts by this name
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}                                                                                         // Ctrl-C does not reach it
	out, err := cmd.StdoutPipe()
	if err != nil {
		return running{}, nil, err
	}
	if err := cmd.Start(); err != nil {
		return running{}, nil, err
	}
	lines := bufio.NewReader(out)
	var rest sync.WaitGroup
	stop := func() error {
		_ = cmd.Process.Kill() // there is nothing to save
		rest.Wait()
		_ = cmd.Wait() // killed
		return nil
	}
	version, err := redisReady(lines)
	if err != nil {
		return running{}, nil, errors.Join(err, stop())
	}
	rest.Go(func() { _, _ = io.Copy(io.Discard, lines) })
	return running{Address: net.JoinHostPort("127.0.0.1", port), PID: cmd.Process.Pid, Version: version}, stop, nil
}

// redisReady reads the log until connections are accepted.
func redisReady(lines *bufio.Reader) (version string, err error) {
	var log strings.Builder
	for {
		line, err := lines.ReadString('\n')
		log.WriteString(line)
		if err != nil {
			return "", fmt.Errorf("redis-server did not start: %s", log.String())
		}
		if _, after, ok := strings.Cut(line, "Redis version="); ok {
			version, _, _ = strings.Cut(after, ",")
		}
		if strings.Contains(line, "Ready to accept connections") {
			return version, nil
		}
	}
}

// findRedis finds the server or, as root, installs Debian's package of it. That is
// redis-tools: its redis-check-rdb is the server under another name. Unlike the package
// redis-server, it starts no service.
func findRedis(ctx context.Context) (string, error) {
	for _, name := range []string{"redis-server", "redis-check-rdb"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	remedy := errors.New("there is no redis-server: apt-get install redis-tools, or brew install redis")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 || os.Getenv("PGLATCH_NO_DOWNLOAD") == "1" {
		return "", remedy
	}
	apt := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		return cmd.Run()
	}
	install := func() error { return apt("install", "-y", "--no-install-recommends", "redis-tools") }
	if install() != nil { // a fresh image has no package lists
		if err := errors.Join(apt("update"), install()); err != nil {
			return "", fmt.Errorf("%w (%w)", remedy, err)
		}
	}
	return exec.LookPath("redis-check-rdb")
}

// freePort returns a port that is free now.
func freePort(ctx context.Context) (string, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}
