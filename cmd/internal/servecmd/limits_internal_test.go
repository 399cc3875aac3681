package servecmd

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/lease/leaseserver"
)

func TestEachLimitReachesTheServer(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]leaseserver.Config{
		"":            {},
		"--rate=0.5":  {Rate: .5},
		"--rate=0":    {},
		"--max-body=": {},
		"--rate=7 --burst=3 --max-wait=2s --max-waiters=5 --max-body=900 --store-timeout=4s": {
			Rate: 7, Burst: 3, MaxWait: 2 * time.Second, MaxWaiters: 5, MaxBody: 900, StoreTimeout: 4 * time.Second,
		},
	} {
		if want.MaxWait == 0 {
			want.MaxWait, want.MaxWaiters, want.MaxBody, want.StoreTimeout = leaseserver.DefaultMaxWait, leaseserver.DefaultMaxWaiters, leaseserver.DefaultMaxBody, leaseserver.DefaultStoreTimeout
		}
		var got leaseserver.Config
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		addLimits(f, &got)
		if err := f.Parse(strings.Fields(args)); strings.HasSuffix(args, "=") {
			require.Error(t, err, args)
			continue
		}
		require.NoError(t, checkLimits(&got))
		assert.Equal(t, want, got, args)
	}
}
