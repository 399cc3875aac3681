package pgserver_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"testing"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
)

// helperVariable makes the test binary a helper process instead, see helper.
const helperVariable = "PGLATCH_PGSERVER_HELPER"

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperVariable); mode != "" {
		if err := helper(mode); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	pgtest.Main(m)
}

// A report is what a helper process prints about its server, on one line of JSON.
type report struct {
	DSN, Dir      string
	PID, Watchdog int
}

// helper starts a server, reports it, and ends with its standard input: by returning without a Close, or
// with a panic.
func helper(mode string) error {
	s, err := pgserver.Start(context.Background(), pgserver.Options{})
	if err != nil {
		return err
	}
	r := report{DSN: s.DSN(""), Dir: s.Dir(), PID: s.PID(), Watchdog: s.WatchdogPID()}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	_, _ = os.Stdin.Read(make([]byte, 1))
	runtime.KeepAlive(s) // its finalizers would end the server, by the watchdog's pipe
	if mode == "panic" {
		panic("the helper was told to panic")
	}
	return nil
}
