package leaseserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

// The program decides the rights of each request: here, everybody may read, and one user may hold.
func ExampleConfig_authorize() {
	server, err := leaseserver.New(leaseserver.Config{
		Store: leasetest.NewStore(),
		Authorize: func(r *http.Request) error {
			if user, _, _ := r.BasicAuth(); user != "worker" && r.Method != http.MethodGet {
				return errors.New("only worker may hold leases")
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, user := range []string{"worker", "guest"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/locks/report/acquire", strings.NewReader(`{"owner_id":"w1","ttl_ms":30000}`))
		r.Header.Set("Content-Type", "application/json")
		r.SetBasicAuth(user, "")
		w := httptest.NewRecorder()
		server.Handler().ServeHTTP(w, r)
		fmt.Println(user, w.Code)
	}
	// Output:
	// worker 200
	// guest 403
}
