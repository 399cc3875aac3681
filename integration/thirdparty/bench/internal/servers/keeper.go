package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/worker"
	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
)

// A keeper is this program again, in a process that runs one server. It ends the server when
// the bench closes the pipe or dies.
type keeper struct {
	running

	cmd *exec.Cmd
	in  io.Closer
}

// running is the first line that a keeper prints.
type running struct {
	Address string `json:"address"`
	PID     int    `json:"pid"` // of the server
	Version string `json:"version"`
	Error   string `json:"error,omitempty"`
}

// startUp limits the start of a server, including its installation.
const startUp = 3 * time.Minute

func startKeeper(ctx context.Context, server system.Server) (*keeper, error) {
	cmd, in, out, err := worker.Spawn(context.WithoutCancel(ctx), string(server)) // killing the keeper would leave its server behind
	if err != nil {
		return nil, err
	}
	k := &keeper{cmd: cmd, in: in}
	tooLong := time.AfterFunc(startUp, func() { _ = cmd.Process.Kill() })
	defer tooLong.Stop()
	if err := json.NewDecoder(out).Decode(&k.running); err != nil {
		return nil, errors.Join(fmt.Errorf("%s did not start: %w", server, err), k.Close())
	}
	if k.Error != "" {
		return nil, errors.Join(errors.New(k.Error), k.Close())
	}
	return k, nil
}

// Close ends the server and waits for it.
func (k *keeper) Close() error {
	if err := k.in.Close(); err != nil {
		return err
	}
	return k.cmd.Wait()
}

// Keep is the main function of a keeper: it runs a server until in ends.
func Keep(ctx context.Context, server system.Server, in io.Reader, out io.Writer) error {
	dir, err := os.MkdirTemp("", "pglatch-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory
	start := startRedis
	if server != system.Redis {
		start = func(_ context.Context, dir string) (running, func() error, error) {
			address, stop, err := etcdtest.Serve(etcdtest.Member{Dir: filepath.Join(dir, "etcd"), NoFsync: server == system.EtcdNoFsync})
			return running{Address: address, PID: os.Getpid(), Version: etcdtest.Version()}, func() error { stop(); return nil }, err
		}
	}
	r, stop, err := start(ctx, dir)
	if err != nil {
		return json.NewEncoder(out).Encode(running{Error: err.Error()})
	}
	err = json.NewEncoder(out).Encode(r)
	if err == nil {
		_, err = io.Copy(io.Discard, in)
	}
	return errors.Join(err, stop())
}
