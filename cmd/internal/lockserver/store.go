package lockserver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/cmd/internal/program"
	"github.com/pglatch/pglatch/introspect"
	"github.com/pglatch/pglatch/leader"
	"github.com/pglatch/pglatch/leader/activeserver"
	leaderpostgres "github.com/pglatch/pglatch/leader/postgres"
	"github.com/pglatch/pglatch/lease"
	"github.com/pglatch/pglatch/lease/sqlite"
)

// StoreFlags are the flags that select the store of the leases.
type StoreFlags struct {
	Store      string
	durability string
	maxConns   int32
	more       []StoreKind
}

// A StoreKind is a kind of store for --store, in addition to those of every program.
type StoreKind struct {
	Scheme string // of its URL
	Usage  string // how to write it

	// Open opens the store that --store names. Errors quote no password.
	Open func(ctx context.Context, app *program.App, url string) (*OpenStore, error)
}

// etcdScheme is the scheme of stores that only a separate program has.
const etcdScheme = "etcd"

// AddFlags adds the flags.
func (s *StoreFlags) AddFlags(f *pflag.FlagSet, more []StoreKind) {
	s.more = more
	f.StringVar(&s.Store, "store", "", "`where` leases are kept: "+strings.Join(s.usages(), ", ")+" or postgres (the database of --database-url)")
	f.StringVar(&s.durability, "durability", "durable", "which failure an answer survives on SQLite: durable (a power failure) or relaxed (the end of the process)")
	program.Only(f, "durability", "durable", "relaxed")
	f.Int32Var(&s.maxConns, "max-conns", 16, "connections to PostgreSQL at most")
}

func (s *StoreFlags) usages() []string {
	all := []string{"sqlite:FILE", "postgres://…"}
	for _, k := range s.more {
		all = append(all, k.Usage)
	}
	return all
}

// An OpenStore is a store to be closed. The store is a field and not embedded. Embedding would hide
// the methods that leaseserver looks for in addition to lease.Store: its health and the hand-over
// of a lock.
type OpenStore struct {
	Store lease.Store
	Name  string // for people
	Close func() error

	// Shared means that several servers can use the store.
	Shared bool

	// Session returns the Session of activeserver.Config. nil = none.
	Session func() (leader.Backend, error)
}

// Open opens the store; file is the SQLite file if --store is not given.
func (s *StoreFlags) Open(ctx context.Context, app *program.App, file string) (*OpenStore, error) {
	kind, rest, _ := strings.Cut(s.Store, ":")
	for _, k := range s.more {
		if kind != k.Scheme {
			continue
		}
		if s.durability == "relaxed" {
			return nil, program.UsageError("--durability relaxed is for SQLite")
		}
		return k.Open(ctx, app, s.Store)
	}
	switch {
	case s.Store == "":
	case kind == etcdScheme:
		return nil, program.UsageError("--store %s: is not in this program: use pglatch-etcd, of the module github.com/pglatch/pglatch/cmd/pglatch-etcd", kind)
	case kind == "sqlite" && rest != "":
		var err error
		if file, err = sqliteFile(rest); err != nil {
			return nil, err
		}
	case s.Store == "postgres":
		return s.openPostgres(ctx, app)
	case kind == "postgres" || kind == "postgresql":
		app.UseDatabase(s.Store, "--store")
		return s.openPostgres(ctx, app)
	default: // it may contain a password
		return nil, program.UsageError("--store is none of %s and postgres", strings.Join(s.usages(), ", "))
	}
	return s.openSQLite(ctx, app, file)
}

// sqliteFile returns the file that sqlite:REST names. It refuses a form that other programs read as
// a host or as no file at all: the file would be in an unexpected place.
func sqliteFile(rest string) (string, error) {
	switch {
	case rest == ":memory:" || strings.HasPrefix(rest, "file:"):
		return "", program.UsageError("--store sqlite:%s is no file: a store is kept in one, as sqlite:locks.db or sqlite:/var/lib/pglatch/locks.db", rest)
	case strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "///"):
		name := strings.TrimPrefix(rest, "//")
		return "", program.UsageError("--store sqlite:%s has a host: say sqlite:%s for a file here, or sqlite:///%s for one at the root", rest, name, name)
	}
	return rest, nil
}

func (s *StoreFlags) openSQLite(ctx context.Context, app *program.App, file string) (*OpenStore, error) {
	config := sqlite.Config{Logger: app.Logger()}
	if s.durability == "relaxed" {
		config.Durability = sqlite.Relaxed
	}
	store, err := sqlite.Open(ctx, file, config)
	if err != nil {
		return nil, program.Unavailable(ctx, err)
	}
	return &OpenStore{Store: store, Name: "sqlite:" + file, Close: store.Close}, nil
}

func (s *StoreFlags) openPostgres(ctx context.Context, app *program.App) (*OpenStore, error) {
	if s.durability == "relaxed" {
		return nil, program.UsageError("--durability relaxed is for SQLite: PostgreSQL has synchronous_commit, a setting of the database or the role")
	}
	cc, err := app.ConnConfig()
	if err != nil {
		return nil, err
	}
	if err := program.AtLeastOne("max-conns", s.maxConns); err != nil {
		return nil, err
	}
	store, pool, err := openStore(ctx, cc, s.maxConns)
	if err != nil {
		return nil, err
	}
	if err := store.Migrate(ctx); err != nil {
		pool.Close()
		return nil, program.Unavailable(ctx, err)
	}
	return &OpenStore{
		Store: store, Name: program.Target(cc),
		Close: func() error {
			pool.Close()
			return nil
		},
		Shared: true,
		Session: func() (leader.Backend, error) {
			return leaderpostgres.New(leaderpostgres.Config{
				ConnConfig: cc, Key: activeserver.SessionKey, NoTerms: true, Answer: introspect.Config{Off: true}, Logger: app.Logger(),
			})
		},
	}, nil
}

// StateFile is the default SQLite file of a server: locks.db in the directory that systemd created
// for a service. Otherwise it is in pglatch's own directory below the user's state directory (XDG
// Base Directory Specification).
func StateFile() (string, error) {
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":") // systemd.exec(5)
	if dir == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if home := os.Getenv("HOME"); base == "" && home != "" {
			base = filepath.Join(home, ".local", "state")
		}
		if !filepath.IsAbs(base) {
			return "", program.UsageError("there is no directory for the locks' file: say with --store sqlite:FILE where to keep it")
		}
		dir = filepath.Join(base, "pglatch")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", &program.ExitError{Code: program.ExitUnavailable, Err: fmt.Errorf("a directory for the locks' file: %w", err)}
	}
	return filepath.Join(dir, "locks.db"), nil
}
