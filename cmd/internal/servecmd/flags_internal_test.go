//go:build unix

package servecmd

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/leader/activeserver"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
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

func TestALabelIsNoPartOfAConnectionString(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		"postgres://db-1/shop":                 {"", "postgres://db-1/shop"},
		"postgres://db-1/shop?sslmode=disable": {"", "postgres://db-1/shop?sslmode=disable"},
		"host=db-1 dbname=shop":                {"", "host=db-1 dbname=shop"},
		"prod=postgres://db-1/shop":            {"prod", "postgres://db-1/shop"},
		"prod=host=db-1 dbname=shop":           {"prod", "host=db-1 dbname=shop"},
		"":                                     {"", ""},
	} {
		label, url := labelled(text)
		assert.Equal(t, want, [2]string{label, url}, text)
	}
}

// A Kubernetes pod's IP has no brackets, and a manifest cannot add them for one family alone.
func TestAnAdvertisedURLMayHaveAnAddressOfEitherFamily(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"https://10.0.0.7:8443":                               "https://10.0.0.7:8443",
		"https://fd00:10:244::5:8443":                         "https://[fd00:10:244::5]:8443",
		"https://fd00:10:244:1:2:3:4:5:8443":                  "https://[fd00:10:244:1:2:3:4:5]:8443",
		"https://2001:db8:1111:2222:3333:4444:5555:6666:8443": "https://[2001:db8:1111:2222:3333:4444:5555:6666]:8443",
		"http://::1:80/":                                      "http://[::1]:80/",
		"https://[fd00::5]:8443":                              "https://[fd00::5]:8443",
		"https://[fd00::5]":                                   "https://[fd00::5]",
		"https://locks-1.example":                             "https://locks-1.example",
		"https://locks-1.example:8443":                        "https://locks-1.example:8443",
	} {
		p := peers{advertise: given}
		got := p.url(&net.TCPAddr{IP: net.IPv6zero, Port: 8443}, true)
		assert.Equal(t, want, got)
		_, err := activeserver.New(activeserver.Config{URL: got, Store: leasetest.NewStore()})
		require.NoError(t, err, got)
	}
}

// A file's mode is of the file, whatever the process does at the same time: nothing here is parallel.
func TestASocketForEverybodyGivesNoOtherFileToEverybody(t *testing.T) {
	socket, files := aShortPath(t), t.TempDir()
	modeOf := func(path string) os.FileMode {
		info, err := os.Lstat(path)
		require.NoError(t, err)
		return info.Mode().Perm()
	}
	create := func(i int) os.FileMode {
		path := filepath.Join(files, strconv.Itoa(i))
		f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL, 0o666)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		return modeOf(path)
	}
	usual := create(0)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 2000 {
			listener, err := listenUnix(t.Context(), socket, 0o777)
			if assert.NoError(t, err) {
				assert.Equal(t, os.FileMode(0o777), modeOf(socket))
				assert.NoError(t, listener.Close())
			}
		}
	}()
	defer func() { <-ended }()
	for i := 1; ; i++ {
		require.Zero(t, create(i)&^usual, "a file has rights that it did not ask for")
		select {
		case <-ended:
			return
		default:
		}
	}
}

func aShortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pglatch") //nolint:usetesting // with the name of a test it can be too long
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "s")
}
