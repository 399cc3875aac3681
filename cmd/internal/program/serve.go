package program

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"time"
)

// Serve serves by HTTP until ctx ends. Then it ends current requests: viewers and scrapers reconnect
// automatically.
func Serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serving: %w", err)
	}
	return nil
}
