package leaseserver

import (
	"bytes"
	"context"
	"log/slog"
)

// An httpLog logs net/http's reports about connections. Reports that any client can cause are
// logged at level Debug. A failure to accept connections is logged at level Warn.
type httpLog struct{ logger *slog.Logger }

func (l *httpLog) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	switch {
	case bytes.Contains(line, []byte("TLS handshake error")), bytes.Contains(line, []byte("superfluous")), bytes.Contains(line, []byte("URL query contains")):
		level = slog.LevelDebug
	case bytes.Contains(line, []byte("panic serving")):
		level = slog.LevelError
	}
	l.logger.LogAttrs(context.Background(), level, "http_server", slog.String("error", string(bytes.TrimSpace(line))))
	return len(line), nil
}
