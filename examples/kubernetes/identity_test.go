package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// holderOf runs the program on an API that has no Lease, and returns the holder of the
// Lease that it creates.
func holderOf(t *testing.T) string {
	t.Helper()
	holders := make(chan string, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		var lease coordinationv1.Lease
		if r.Method == http.MethodGet || json.NewDecoder(r.Body).Decode(&lease) != nil {
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: http.StatusNotFound})
			return
		}
		holders <- *lease.Spec.HolderIdentity
		lease.ResourceVersion = "1"
		_ = json.NewEncoder(w).Encode(lease)
	}))
	defer api.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"clusters": [{"name": "c", "cluster": {"server": %q}}],
		"contexts": [{"name": "c", "context": {"cluster": "c"}}], "current-context": "c"}`, api.URL), 0o600))
	o, err := parse([]string{"-kubeconfig", kubeconfig, "-listen", "127.0.0.1:0"})
	require.NoError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, o, slog.New(slog.DiscardHandler)) }()
	var holder string
	select {
	case holder = <-holders:
	case <-ctx.Done():
		require.Fail(t, "nobody stood for election")
	}
	stop()
	assert.NoError(t, <-ended)
	return holder
}

// suffix matches what the backend adds, so that no two processes have the same identity.
const suffix = `_[a-z2-7]{16}$`

func TestTheHolderIsThePod(t *testing.T) {
	t.Setenv("POD_NAME", "example-7d4b9c-x2x4z")
	assert.Regexp(t, `^example-7d4b9c-x2x4z`+suffix, holderOf(t))
}

func TestTheHolderIsTheHostWhereNoPodIsNamed(t *testing.T) {
	host, err := os.Hostname()
	require.NoError(t, err)
	t.Setenv("POD_NAME", "")
	assert.Regexp(t, `^`+host+suffix, holderOf(t))
}
