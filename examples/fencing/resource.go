package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/postgres"
)

// A resource is protected by leases. A write that it refuses returns errRefused.
type resource interface {
	write(ctx context.Context, c lease.Claim, text string) error
	read(ctx context.Context) (string, error)
}

var errRefused = errors.New("refused")

// A webResource is a document at a URL.
type webResource struct{ url string }

func (w webResource) write(ctx context.Context, c lease.Claim, text string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, w.url, strings.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set(tokenHeader, strconv.FormatUint(c.Token, 10))
	_, err = w.do(request)
	return err
}

func (w webResource) read(ctx context.Context) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url, nil)
	if err != nil {
		return "", err
	}
	return w.do(request)
}

func (w webResource) do(request *http.Request) (string, error) {
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	text := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode == http.StatusPreconditionFailed:
		return "", fmt.Errorf("%w: %s: %s", errRefused, response.Status, text)
	case response.StatusCode >= http.StatusBadRequest:
		return "", fmt.Errorf("%s: %s", response.Status, text)
	}
	return text, nil
}

// A tableResource is a row in the database of the leases.
type tableResource struct {
	conn    *pgx.Conn
	guarded bool
}

const schema = `CREATE TABLE document (one bool PRIMARY KEY DEFAULT true, text text NOT NULL); INSERT INTO document (text) VALUES ('')`

func (t tableResource) write(ctx context.Context, c lease.Claim, text string) error {
	err := pgx.BeginFunc(ctx, t.conn, func(tx pgx.Tx) error {
		if t.guarded {
			if err := postgres.Guard(ctx, tx, c); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "UPDATE document SET text = $1", text)
		return err
	})
	if errors.Is(err, lease.ErrStale) || errors.Is(err, lease.ErrExpired) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}

func (t tableResource) read(ctx context.Context) (text string, err error) {
	err = t.conn.QueryRow(ctx, "SELECT text FROM document").Scan(&text)
	return text, err
}
