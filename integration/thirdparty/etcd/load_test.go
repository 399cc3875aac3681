package etcd_test

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/integration/thirdparty/etcdtest"
)

// A TTL of less than a second becomes one of a whole second at least, and etcd ends leases some time after theirs.
func TestTheLoadFindsNoBrokenPromiseOnEtcd(t *testing.T) {
	t.Parallel()
	program := command(t)
	store := "etcd://" + strings.TrimPrefix(serve(t, etcdtest.Member{NoFsync: true}), "http://")
	stale := 0
	for round := 0; stale == 0 && round < 5; round++ { // a busy machine may not get as far in its time
		load := exec.CommandContext(t.Context(), program, "load", "--store", store, "--duration", "8s", "-o", "json",
			"--clients", "8", "--locks", "8", "--ttl", "300ms", "--heartbeats", "5", "--expire", "30")
		var says strings.Builder
		load.Stderr = &says
		out, err := load.Output()
		require.NoError(t, err, "%s%s", out, &says)
		var report struct {
			Counts struct {
				StaleRenewals int `json:"stale_renewals_refused"`
			}
		}
		require.NoError(t, json.Unmarshal(out, &report), string(out))
		stale = report.Counts.StaleRenewals
	}
	assert.Positive(t, stale, "some were left to expire")
}
