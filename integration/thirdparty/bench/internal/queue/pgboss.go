package queue

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// PgBoss is pg-boss, whose queues with the policy key_strict_fifo promise one job of a key at a time, in order: with its own
// workers, and with a loop that looks more often. The first run fetches it and a Node.js from npm.
var PgBoss = []System{
	{"pg-boss, key_strict_fifo, work", true, pgBossOf("work")},
	{"pg-boss, key_strict_fifo, a loop over fetch", true, pgBossOf("loop")},
}

// pgBoss is a process of worker.mjs.
type pgBoss struct {
	site  *Site
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
	send  string // the statement of pg-boss that sends jobs
}

//go:embed pgboss
var pgBossFiles embed.FS

// installPgBoss returns a directory with the worker and the packages that package-lock.json lists.
func installPgBoss(ctx context.Context) (dir string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	const lock = "package-lock.json"
	list, err := pgBossFiles.ReadFile("pgboss/" + lock)
	if err != nil {
		return "", err
	}
	dir = filepath.Join(cache, "pglatch", fmt.Sprintf("pgboss-%.6x", sha256.Sum256(list)))
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // nothing secret
		return "", err
	}
	for _, name := range []string{"package.json", lock, "worker.mjs"} {
		content, err := pgBossFiles.ReadFile("pgboss/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o644) //nolint:gosec // nothing secret
		}
		if err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "."+lock)); err == nil { // npm writes it last
		return dir, nil
	}
	npm := exec.CommandContext(ctx, "npm", "ci", "--silent", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		return "", fmt.Errorf("npm ci in %s: %w\n%s", dir, err, out)
	}
	return dir, nil
}

func pgBossOf(way string) func(context.Context, *Site) (Queue, error) {
	return func(ctx context.Context, s *Site) (Queue, error) { return openPgBoss(ctx, s, way) }
}

func openPgBoss(ctx context.Context, s *Site, way string) (Queue, error) {
	dir, err := installPgBoss(ctx)
	if err != nil {
		return nil, err
	}
	node := filepath.Join(dir, "node_modules", "node-"+runtime.GOOS+"-"+strings.Replace(runtime.GOARCH, "amd64", "x64", 1), "bin", "node")
	if _, err := os.Stat(node); err != nil { // not one of the platforms in package.json
		node = "node"
	}
	q := &pgBoss{site: s}
	q.cmd = exec.Command(node, "worker.mjs", s.DSN, strconv.Itoa(s.Workers), way) //nolint:noctx // Close ends it
	q.cmd.Dir, q.cmd.Stderr = dir, os.Stderr
	if q.in, err = q.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := q.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := q.cmd.Start(); err != nil {
		return nil, err
	}
	q.lines = bufio.NewScanner(out)
	q.lines.Buffer(nil, 1<<20)
	var said struct {
		Send string `json:"send"`
	}
	if !q.lines.Scan() {
		q.Close()
		return nil, errors.New("the worker of pg-boss did not start")
	}
	err = json.Unmarshal(q.lines.Bytes(), &said)
	q.send = said.Send
	return q, err
}

func (q *pgBoss) Close() {
	_ = q.in.Close()
	_ = q.cmd.Process.Kill() // if it has not ended
	_ = q.cmd.Wait()
}

// A pgBossJob has the fields of a job that differ from the queue's.
type pgBossJob struct {
	Data Message `json:"data"`
	Key  string  `json:"singletonKey"`
}

// jobs returns the parameter of the statement that sends messages.
func jobs(messages ...Message) (string, error) {
	all := make([]pgBossJob, len(messages))
	for i, m := range messages {
		all[i] = pgBossJob{m, strconv.FormatInt(m.Entity, 10)}
	}
	text, err := json.Marshal(all)
	return string(text), err
}

// Fill stores the jobs of a batch at one time, so it corrects the times by which pg-boss orders them.
func (q *pgBoss) Fill(ctx context.Context, count, each int) error {
	err := inBatches(count, each, func(messages []Message) error {
		text, err := jobs(messages...)
		if err == nil {
			_, err = q.site.Pool.Exec(ctx, q.send, text)
		}
		return err
	})
	if err != nil {
		return err
	}
	_, err = q.site.Pool.Exec(ctx, "UPDATE pgboss.job SET created_on = created_on - interval '1 hour' + (data ->> 'N')::int * interval '1 ms'")
	return err
}

func (q *pgBoss) Send(ctx context.Context, tx pgx.Tx, m Message) error {
	text, err := jobs(m)
	if err == nil {
		_, err = tx.Exec(ctx, q.send, text)
	}
	return err
}

func (q *pgBoss) Serve(ctx context.Context, began func([]Message) (left func()), ended func([]Message)) error {
	if _, err := io.WriteString(q.in, "serve\n"); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _, _ = io.WriteString(q.in, "stop\n") })()
	left := map[Message]func(){}
	for q.lines.Scan() {
		var what string
		var m Message
		if _, err := fmt.Sscan(q.lines.Text(), &what, &m.Entity, &m.N, &m.Sent); err != nil {
			return fmt.Errorf("the worker of pg-boss says %q: %w", q.lines.Text(), err)
		}
		if what == "b" {
			left[m] = began([]Message{m})
		} else {
			left[m]()
			delete(left, m)
			ended([]Message{m})
		}
	}
	if ctx.Err() == nil {
		return errors.New("the worker of pg-boss ended")
	}
	return context.Cause(ctx)
}
