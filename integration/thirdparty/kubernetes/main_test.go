//go:build linux

package kubernetes

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/electiontest"
)

const patience = await.Patience

// cluster is the API that all tests use.
var cluster *api

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	electiontest.Main(map[string]electiontest.Role{"ours": ours, "client-go": theirs})
	os.Exit(run(m))
}

func run(m *testing.M) int {
	began := time.Now()
	var err error
	if cluster, err = openAPI(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "opening the API:", err)
		return 1
	}
	defer cluster.close()
	fmt.Printf("%s: ready after %v\n", cluster.name, time.Since(began).Round(time.Millisecond))
	return m.Run()
}

// leaseName is that of a fresh election.
func leaseName() string { return "election-" + strings.ToLower(rand.Text()[:10]) }
