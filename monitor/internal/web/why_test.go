package web_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/monitor/internal/web"
)

func TestThePageSaysWhyTheDatabaseDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"PostgreSQL says: sorry, too many clients already": &pgconn.PgError{Code: "53300", Message: "sorry, too many clients already"},
		"the network says: connect: connection refused":    &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3)}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)},
		"the name cannot be resolved":                      &net.OpError{Op: "dial", Err: &net.DNSError{Name: "s3cret", IsNotFound: true}},
		"nothing came from it in time":                     context.DeadlineExceeded,
		"the log of this monitor says why":                 errors.New("s3cret"),
	} {
		p := web.New(web.Config{
			Look:   func(context.Context) (*web.State, error) { return nil, fmt.Errorf("s3cret: %w", err) },
			Refuse: func(w http.ResponseWriter, status int, detail string) { http.Error(w, detail, status) },
		})
		answer := get(t, p, "/")
		assert.Equal(t, http.StatusServiceUnavailable, answer.Code)
		assert.Contains(t, answer.Body.String(), want)
		assert.NotContains(t, answer.Body.String(), "s3cret")
		assert.NotContains(t, answer.Body.String(), "10.1.2.3")
	}
}
