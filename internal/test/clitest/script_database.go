package clitest

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/assert"

	"github.com/pglatch/pglatch/internal/test/await"
	"github.com/pglatch/pglatch/internal/test/pgtest"
	"github.com/pglatch/pglatch/internal/test/pgtest/pgserver"
	"github.com/pglatch/pglatch/lease/leaseserver"
	"github.com/pglatch/pglatch/lease/leasetest"
)

func (s *script) database([]string) { s.use(pgtest.DSN(s.t)) }

func (s *script) server(settings []string) {
	o := pgserver.Options{Settings: make(map[string]string)}
	for _, setting := range settings {
		name, value, _ := strings.Cut(setting, "=")
		o.Settings[name] = value
	}
	s.postgres = pgtest.StartServer(s.t, o)
	s.use(s.postgres.DSN(""))
}

// standby makes a standby of the script's server, and uses it.
func (s *script) standby([]string) {
	standby, err := s.postgres.Standby(s.t.Context())
	s.Check(err)
	s.t.Cleanup(func() { assert.NoError(s.t, standby.Close()) })
	s.Setenv("PRIMARY", s.postgres.DSN(""))
	s.use(standby.DSN(""))
}

func (s *script) shutdown([]string) { s.Check(s.postgres.Stop(s.t.Context(), pgserver.Fast)) }

func (s *script) startup([]string) {
	clear(s.sessions)
	s.Check(s.postgres.Start(s.t.Context()))
}

// use makes a database the script's, with new sessions.
func (s *script) use(dsn string) {
	u, err := url.Parse(dsn)
	s.Check(err)
	s.Setenv("DATABASE_URL", dsn)
	s.Setenv("DATABASE", strings.TrimPrefix(u.Path, "/"))
	u.Path = "/nowhere"
	s.Setenv("MISSING", u.String())
	clear(s.sessions)
}

func (s *script) lockServer(tokens []string) {
	config := leaseserver.Config{Store: leasetest.NewStore()}
	for _, token := range tokens {
		config.Tokens = append(config.Tokens, leaseserver.Token{Secret: token})
	}
	s.Setenv("PGLATCH_LOCK_SERVER", ServeConfig(s.t, config).URL)
}

// reserve sets ADDRESS, where programs of the script can listen, one after the other.
func (s *script) reserve([]string) { s.Setenv("ADDRESS", Reserve(s.t)) }

func (s *script) certificate(args []string) {
	WriteCertificate(s.t, s.MkAbs(args[0]), s.MkAbs(args[1]))
}

// session returns the session of a name.
func (s *script) session(name string) *pgx.Conn {
	conn := s.sessions[name]
	if conn == nil {
		conn = Connect(s.t, s.Getenv("DATABASE_URL"), name)
		s.sessions[name] = conn
		s.Setenv(name, strconv.Itoa(int(conn.PgConn().PID())))
	}
	return conn
}

func (s *script) sql(args []string) { Execute(s.t, s.session(args[0]), args[1]) }

func (s *script) waits(args []string) {
	WaitFor(s.t, s.Getenv("DATABASE_URL"), s.session(args[0]), args[1])
}

func (s *script) held(args []string) {
	count, err := strconv.Atoi(args[0])
	s.Check(err)
	conn := s.session("judge")
	await.Until(s.t, await.Soon, func() bool { return len(Holders(s.t, conn)) == count }, "not %d locks are held", count)
}

func (s *script) queued([]string) { RequireWaiting(s.t, s.session("judge")) }

func (s *script) depose([]string) {
	conn := s.session("judge")
	Terminate(s.t, conn, Holders(s.t, conn)[0])
}
