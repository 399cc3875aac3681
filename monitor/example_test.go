package monitor_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/pglatch/pglatch/monitor"
	"github.com/pglatch/pglatch/namespace"
)

func ExampleMonitor_Snapshot() {
	set, err := namespace.NewSet(namespace.Must(1, "agent"))
	if err != nil {
		panic(err)
	}
	m, err := monitor.Open(monitor.Config{DSN: os.Getenv("DATABASE_URL"), Namespaces: set})
	if err != nil {
		panic(err)
	}
	defer m.Close()

	s, err := m.Snapshot(context.Background())
	if err != nil {
		panic(err)
	}
	for _, l := range s.Locks {
		fmt.Println(l.Key.Text, l.ApplicationName, l.Granted, l.BlockedBy)
	}
}

func ExampleMonitor_Handler() {
	m, err := monitor.Open(monitor.Config{DSN: os.Getenv("DATABASE_URL")})
	if err != nil {
		panic(err)
	}
	defer m.Close()

	// curl http://localhost:8080/pglatch/api/advisory-locks?state=waiting
	http.Handle("/pglatch/", m.Handler())
	server := &http.Server{Addr: "127.0.0.1:8080"}
	fmt.Println(server.ListenAndServe())
}

// The page behind a program's own authentication, with a past that is known when somebody comes.
func ExampleMonitor_Page() {
	m, err := monitor.Open(monitor.Config{
		DSN:       os.Getenv("DATABASE_URL"),
		Record:    2 * time.Second,
		Authorize: monitor.AllowAll, // the handler below lets nobody else in
	})
	if err != nil {
		panic(err)
	}
	defer m.Close()
	onlyStaff := func(h http.Handler) http.Handler { return h } // yours
	http.Handle("/locks/", onlyStaff(m.Page()))
}
