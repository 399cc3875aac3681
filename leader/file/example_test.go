package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/file"
)

// Of all processes that use the same file, one runs the work.
func ExampleNewBackend() {
	dir, err := os.MkdirTemp("", "election")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	elector, err := leader.New(leader.Config{Name: "scheduler", Backend: file.NewBackend(filepath.Join(dir, "leader.json"))})
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	err = elector.Run(ctx, func(ctx context.Context) error {
		fmt.Println("leading in term", leader.TermOfContext(ctx))
		stop() // a real program works until ctx ends
		return nil
	})
	fmt.Println(err)
	// Output:
	// leading in term 1.1
	// <nil>
}
