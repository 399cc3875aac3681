package middleware_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"

	"github.com/pglatch/pglatch/advisory"
	"github.com/pglatch/pglatch/advisory/advisorytest"
	"github.com/pglatch/pglatch/middleware"
	"github.com/pglatch/pglatch/namespace"
)

// exampleLocker stands for advisory.Open(ctx, advisory.Config{DSN: dsn}).
func exampleLocker() *advisory.Locker {
	locker, err := advisorytest.NewServer().Open(advisory.Config{})
	if err != nil {
		panic(err)
	}
	return locker
}

// A job holds agent 42 while a request for it comes in.
func ExampleNew() {
	locker := exampleLocker()
	defer locker.Close()
	lock, err := middleware.New(middleware.Config{
		Locker: locker,
		Key:    middleware.PathValue(agents, "id"),
		Skip:   true, // answer at once instead of waiting
	})
	if err != nil {
		panic(err)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /agents/{id}/stop", lock(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("stopping agent", r.PathValue("id"))
	})))

	stop := func(ctx context.Context) {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/agents/42/stop", nil))
		fmt.Printf("%d %q\n", w.Code, w.Header().Get("Retry-After"))
	}
	ctx := context.Background()
	stop(ctx)
	_ = locker.Do(ctx, agents.ID(42), func(context.Context) error {
		stop(ctx)
		return nil
	})
	// Output:
	// stopping agent 42
	// 200 ""
	// 423 "1"
}

// The handler parses an integer, so the key is made from the integer too: "042"
// is agent 42, and what is no integer is refused.
func ExampleRequestError() {
	key := func(r *http.Request) (namespace.Key, error) {
		id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
		if err != nil {
			return namespace.Key{}, &middleware.RequestError{Status: http.StatusNotFound, Detail: "There is no such agent."}
		}
		return agents.ID(id), nil
	}
	for _, id := range []string{"042", "x"} {
		r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/agents/"+id, nil)
		r.SetPathValue("id", id)
		fmt.Println(key(r))
	}
	// Output:
	// agent/42 <nil>
	// invalid middleware: 404 Not Found: There is no such agent.
}
