package servecmd

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/pglatch/pglatch/cmd/internal/lockserver"
	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/internal/background"
	"github.com/pglatch/pglatch/lease/leaseserver"
)

// reload rereads tokens, policies, certificate and authorities at each SIGHUP, until stop. If a file
// is not valid, the previous contents stay in use.
func (s *locksCommand) reload(ctx context.Context, app *program.App, server *leaseserver.Server) (stop func()) {
	files := s.tokenFile != "" || s.ttlFile != "" || s.certificates.file != "" || s.peers.authority != ""
	return atHangup(ctx, app, files, func(said saidFunc) { s.readAgain(said, server) })
}

// A saidFunc logs whether something was read again.
type saidFunc func(what string, err error)

// atHangup calls do at each SIGHUP, until stop. Without files, closing the terminal ends the server.
func atHangup(ctx context.Context, app *program.App, files bool, do func(saidFunc)) (stop func()) {
	hangups := make(chan os.Signal, 1)
	if files {
		signal.Notify(hangups, syscall.SIGHUP)
	}
	said := func(what string, err error) {
		if err != nil {
			app.Logger().Error("not read again: what was there before stays", slog.String("what", what), slog.Any("error", err))
			return
		}
		app.Logger().Info("read again", slog.String("what", what))
	}
	return background.Run(ctx, func(ctx context.Context) {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
				do(said)
			}
		}
	})
}

// readAgain rereads the files.
func (s *certificates) readAgain(said saidFunc) {
	if s.file != "" {
		said("certificate", s.readCertificate())
	}
	if s.clientCA != "" {
		said("authorities", s.readAuthorities())
	}
}

func (s *locksCommand) readAgain(said saidFunc, server *leaseserver.Server) {
	if s.tokenFile != "" {
		tokens, err := lockserver.ReadTokens("--auth-token-file", s.tokenFile)
		if err == nil {
			err = server.SetTokens(tokens)
		}
		said("tokens", err)
	}
	if s.ttlFile != "" {
		policies, err := lockserver.ReadTTLPolicies("--ttl-policy-file", s.ttlFile)
		if err == nil {
			err = server.SetTTLPolicies(policies)
		}
		said("ttl policies", err)
	}
	s.certificates.readAgain(said)
	if s.peers.authority != "" {
		config, err := s.peerTLS()
		if err == nil {
			err = server.SetPeerTLS(config)
		}
		said("authorities of peers", err)
	}
}
