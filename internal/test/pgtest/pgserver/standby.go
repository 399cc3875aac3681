package pgserver

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/jackc/pgx/v5"
)

// Standby makes a hot standby that streams from this running server, with the same settings.
// On success it accepts read-only connections, and the caller must Close it; SELECT pg_promote() makes it a
// primary. It needs neither pg_basebackup, which many packages lack, nor a stop of the primary: it copies the
// data directory between pg_backup_start and pg_backup_stop (PostgreSQL manual, "Making a Base Backup Using the
// Low Level API").
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	standby, err := newServer(s.opts, s.install)
	if err != nil {
		return nil, err
	}
	if err := s.backup(ctx, standby.dataDir()); err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: copy the primary: %w", err), standby.Close())
	}
	conninfo := fmt.Sprintf("host=%s port=%d user=postgres application_name=standby", s.SocketDir(), s.port)
	conf := confLines(map[string]string{"primary_conninfo": conninfo})
	if err := appendFile(standby.dataFile("postgresql.auto.conf"), conf); err != nil {
		return nil, errors.Join(fmt.Errorf("pgserver: %w", err), standby.Close())
	}
	if err := standby.firstStart(ctx); err != nil {
		return nil, errors.Join(err, standby.Close())
	}
	return standby, nil
}

// backup copies the data directory of the running server to target.
func (s *Server) backup(ctx context.Context, target string) error {
	start, stop := "pg_backup_start('standby', true)", "pg_backup_stop(false)"
	if s.install.Major < 15 {
		start, stop = "pg_start_backup('standby', true, false)", "pg_stop_backup(false, false)"
	}
	conn, err := pgx.Connect(ctx, s.DSN(""))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // ends an unfinished backup
	if _, err := conn.Exec(ctx, "SELECT "+start); err != nil {
		return err
	}
	if err := s.as.copyData(s.dataDir(), target); err != nil {
		return err
	}
	var label string
	if err := conn.QueryRow(ctx, "SELECT labelfile FROM "+stop).Scan(&label); err != nil {
		return err
	}
	return errors.Join(s.as.create(filepath.Join(target, "backup_label"), strings.NewReader(label)),
		s.as.create(filepath.Join(target, "standby.signal"), strings.NewReader("")))
}
