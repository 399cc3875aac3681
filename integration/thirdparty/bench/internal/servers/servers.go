// Package servers starts the servers of the compared systems, with one source file for each.
package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/pglatch/pglatch/integration/thirdparty/bench/internal/system"
)

// A Set is the servers of one run.
type Set struct {
	Addresses map[system.Server]string
	PIDs      map[system.Server]int
	Versions  map[system.Server]string
	Missing   map[system.Server]string // the reason why a server is missing, and the remedy
	Limits    Limits                   // of PostgreSQL

	closers []io.Closer
}

// Start starts the needed servers. An unavailable server other than PostgreSQL is Missing.
// dsn is a PostgreSQL server to use; "" starts one. The caller must Close the set.
func Start(ctx context.Context, dsn string, needed map[system.Server]bool) (*Set, error) {
	s := &Set{
		Addresses: map[system.Server]string{}, PIDs: map[system.Server]int{},
		Versions: map[system.Server]string{}, Missing: map[system.Server]string{},
	}
	if err := s.postgres(ctx, dsn); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	if needed[system.PGBenchTools] {
		s.pgbench(ctx)
	}
	for _, server := range []system.Server{system.Redis, system.Etcd, system.EtcdNoFsync} {
		if !needed[server] {
			continue
		}
		keeper, err := startKeeper(ctx, server)
		if err != nil {
			s.Missing[server] = err.Error()
			continue
		}
		s.closers = append(s.closers, keeper)
		s.Addresses[server], s.PIDs[server], s.Versions[server] = keeper.Address, keeper.PID, keeper.Version
	}
	return s, nil
}

// Close ends the servers, the last one first.
func (s *Set) Close() error {
	var errs []error
	for _, c := range slices.Backward(s.closers) {
		errs = append(errs, c.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("end the servers: %w", err)
	}
	return nil
}
