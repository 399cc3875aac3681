package pgserver

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/pglatch/pglatch/internal/sqlstate"
)

// CreateDatabase makes an empty database with a new name and returns its URL.
func (s *Server) CreateDatabase(ctx context.Context) (dsn string, err error) {
	return CreateDatabase(ctx, s.DSN(""))
}

// CreateDatabase creates an empty database with a new name on the server of admin, and returns the same connection
// string for the new database. admin is a connection string whose user may create databases.
func CreateDatabase(ctx context.Context, admin string) (dsn string, err error) {
	name := fmt.Sprintf("pglatch_test_%d_%s", os.Getpid(), strings.ToLower(rand.Text()[:10]))
	err = execute(ctx, admin, func(version string) string {
		sql := "CREATE DATABASE " + pgx.Identifier{name}.Sanitize() + " TEMPLATE template0"
		if !strings.HasPrefix(version, "14.") { // which has no other strategy
			sql += " STRATEGY file_copy" // it needs half the time of the default
		}
		return sql
	})
	if err != nil {
		return "", fmt.Errorf("pgserver: create a database for the test: %w", err)
	}
	return withDatabase(admin, name)
}

// objectInUse is the SQLSTATE of a database that has sessions.
const objectInUse = "55006"

// DropDatabase drops the database of dsn, which CreateDatabase returned, and disconnects its clients.
func DropDatabase(ctx context.Context, admin, dsn string) error {
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	if !strings.HasPrefix(config.Database, "pglatch_test_") {
		return fmt.Errorf("pgserver: database %q was not made by CreateDatabase: it is not dropped", config.Database)
	}
	for { // on a busy machine the processes of the disconnected clients take longer than the 5 s that FORCE waits
		err = execute(ctx, admin, func(string) string {
			return "DROP DATABASE IF EXISTS " + pgx.Identifier{config.Database}.Sanitize() + " WITH (FORCE)"
		})
		if sqlstate.Of(err) != objectInUse || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("pgserver: drop the test's database: %w", err)
	}
	return nil
}

// admins are the connections that execute keeps, by connection string. To connect takes as long as a small database.
var admins = struct {
	sync.Mutex
	idle map[string][]*pgx.Conn
}{idle: make(map[string][]*pgx.Conn)}

// execute runs the statement for the server's version.
func execute(ctx context.Context, dsn string, sql func(version string) string) error {
	conn, err := adminConn(ctx, dsn)
	if err != nil {
		return err
	}
	if _, err = conn.Exec(ctx, sql(conn.PgConn().ParameterStatus("server_version"))); conn.IsClosed() {
		return err
	}
	admins.Lock()
	defer admins.Unlock()
	admins.idle[dsn] = append(admins.idle[dsn], conn)
	return err
}

// adminConn takes a connection that is kept, or connects.
func adminConn(ctx context.Context, dsn string) (*pgx.Conn, error) {
	for {
		admins.Lock()
		kept := admins.idle[dsn]
		if len(kept) == 0 {
			admins.Unlock()
			return pgx.Connect(ctx, dsn)
		}
		conn := kept[len(kept)-1]
		admins.idle[dsn] = kept[:len(kept)-1]
		admins.Unlock()
		if conn.Ping(ctx) == nil {
			return conn, nil
		}
		_ = conn.Close(ctx) // the server was started anew
	}
}

// withDatabase puts another database into a connection string, of either form.
func withDatabase(dsn, name string) (string, error) {
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		return dsn + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", fmt.Errorf("pgserver: %w", err)
	}
	u.Path = "/" + name
	query := u.Query()
	query.Del("dbname") // it would override the path
	query.Del("database")
	u.RawQuery = query.Encode()
	return u.String(), nil
}
