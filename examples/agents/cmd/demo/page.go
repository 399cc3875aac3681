package main

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pglatch/pglatch/examples/agents"
	"github.com/pglatch/pglatch/examples/internal/demokit"
	"github.com/pglatch/pglatch/monitor"
)

// A page is the monitor's HTML page on a loopback address.
type page struct {
	url     string
	monitor *monitor.Monitor
	server  *http.Server
}

// openPage serves the monitor's page for a database. It remembers events from now on.
func openPage(ctx context.Context, dsn string) (*page, error) {
	names, err := agents.Namespaces()
	if err != nil {
		return nil, err
	}
	m, err := monitor.Open(monitor.Config{DSN: dsn, Namespaces: names, Record: time.Second})
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		m.Close()
		return nil, err
	}
	p := &page{url: "http://" + listener.Addr().String() + "/", monitor: m, server: &http.Server{Handler: m.Page(), ReadHeaderTimeout: 5 * time.Second}}
	go func() { _ = p.server.Serve(listener) }() // until close
	return p, nil
}

func (p *page) close() {
	_ = p.server.Close()
	p.monitor.Close()
}

// onThePage claims that the page names a lock's holder. The page relies on the replicas' answers.
func (d *demo) onThePage(ctx context.Context, key, holder string) {
	d.Say("and the page for whoever is on call: %s", d.Paint(demokit.Cyan, d.page.url))
	var y answer
	for end := time.Now().Add(demokit.Patience); time.Now().Before(end); {
		y = d.do(ctx, http.MethodGet, d.page.url, nil)
		if strings.Contains(y.body, key) && strings.Contains(y.body, holder) {
			break
		}
	}
	d.Claim(strings.Contains(y.body, key) && strings.Contains(y.body, holder), "it has %s and %s", key, holder)
}
