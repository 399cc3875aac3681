package browser_test

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/proctest"
	"github.com/pglatch/pglatch/monitor"
)

func TestMain(m *testing.M) {
	proctest.Play(serves, runProcess)
	pgtest.Main(m)
}

// serve serves the page of a database and returns its address.
func serve(t *testing.T, config monitor.Config) string {
	t.Helper()
	if config.Record == 0 {
		config.Record = time.Second
	}
	m, err := monitor.Open(config)
	require.NoError(t, err)
	t.Cleanup(m.Close)
	return listen(t, m.Page())
}

// listen serves a handler below /locks/.
func listen(t *testing.T, h http.Handler) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/locks/", h)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return "http://" + listener.Addr().String() + "/locks/"
}
