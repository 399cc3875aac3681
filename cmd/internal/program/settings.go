package program

import (
	"cmp"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/pglatch/pglatch/namespace"
)

// settings are the flags of every command.
type settings struct {
	databaseURL, databaseURLFile string
	connectTimeout               time.Duration
	applicationName              string
	output                       string
	json                         bool
	color                        string
	quiet, verbose               bool
	logLevel, logFormat          string
	namespaces                   []string

	only []string // the --namespace values without a number

	databaseSource string // the flag that databaseURL comes from; "" = --database-url
}

// annotationFilter marks commands in which --namespace without a number is a filter.
const annotationFilter = "filter"

// DefaultConnectTimeout bounds connecting to one host if nothing else does.
const DefaultConnectTimeout = 5 * time.Second

// AddFlags adds the flags of every command to the program.
func (a *App) AddFlags(f *pflag.FlagSet) {
	s := &a.settings
	f.StringVar(&s.databaseURL, "database-url", "", "PostgreSQL `URL` or keyword/value string; others may see it in the list of processes")
	f.StringVar(&s.databaseURL, "dsn", "", "alias of --database-url")
	f.StringVar(&s.databaseURLFile, "database-url-file", "", "`file` that holds the database URL")
	f.DurationVar(&s.connectTimeout, "connect-timeout", 0, "bound for connecting to one host (default: connect_timeout of the URL, else 5s)")
	f.StringVar(&s.applicationName, "application-name", "", "name of this session in pg_stat_activity (default: that of the URL, else program@host)")
	f.StringVarP(&s.output, "output", "o", "text", "`format` of data: text, json or jsonl")
	Only(f, "output", "text", "json", "jsonl")
	f.BoolVar(&s.json, "json", false, "the same as --output json")
	f.StringVar(&s.color, "color", "auto", "`when` to color text: auto, always or never")
	Only(f, "color", "auto", "always", "never")
	f.BoolVarP(&s.quiet, "quiet", "q", false, "log errors only")
	f.BoolVarP(&s.verbose, "verbose", "v", false, "log details")
	f.StringVar(&s.logLevel, "log-level", "", "debug, info, warn or error (default info)")
	Only(f, "log-level", "debug", "info", "warn", "error")
	f.StringVar(&s.logFormat, "log-format", "text", "`format` of logs: text or json")
	Only(f, "log-format", "text", "json")
	f.StringSliceVar(&s.namespaces, "namespace", nil, "`name=number` of a namespace, repeatable; replaces PGLATCH_NAMESPACES; a name alone filters ls, tree and watch")
}

// Resolve checks the settings and initializes everything that depends on them.
func (a *App) Resolve(cmd *cobra.Command) error {
	a.command = cmd
	s := &a.settings
	if s.json {
		s.output = "json"
	}
	for _, name := range []string{"database-url", "dsn", "database-url-file"} {
		if f := cmd.Flags().Lookup(name); f != nil && f.Changed && f.Value.String() == "" { // as of a variable that is not set
			return UsageError("--%s is empty: name the database, or leave the flag out to use DATABASE_URL or the PG* variables", name)
		}
	}
	if err := cmp.Or(checkOnly(cmd), NotNegative("connect-timeout", s.connectTimeout, "")); err != nil {
		return err
	}
	a.logger = s.newLogger(a.redactor, a.inWords)
	if err := a.resolveNamespaces(); err != nil {
		return err
	}
	return a.checkFilter(cmd.Annotations[annotationFilter] != "")
}

func (s *settings) newLogger(w io.Writer, replace func([]string, slog.Attr) slog.Attr) *slog.Logger {
	level := slog.LevelInfo
	switch {
	case s.logLevel != "":
		_ = level.UnmarshalText([]byte(s.logLevel)) // one of the allowed values
	case s.quiet:
		level = slog.LevelError
	case s.verbose:
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: replace}
	if s.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

// Format is the output format: text, json or jsonl.
func (a *App) Format() string { return a.settings.output }

// Quiet reports whether only errors are printed.
func (a *App) Quiet() bool { return a.settings.quiet }

// Filtered returns the namespaces that a command with AddNamespaceFilter shows, by name or number; none = all.
func (a *App) Filtered() []string { return a.settings.only }

// AddNamespaceFilter makes --namespace without a number a filter of cmd.
func (a *App) AddNamespaceFilter(cmd *cobra.Command) {
	cmd.Annotations = map[string]string{annotationFilter: "true"}
}

// inWords logs errors as the command reports them: those of elections with its flags, and those of a database with
// advice.
func (a *App) inWords(_ []string, attr slog.Attr) slog.Attr {
	if err, ok := attr.Value.Any().(error); ok {
		err = a.unreached(ElectionError(err))
		attr.Value = slog.StringValue(OneLine(err.Error()) + advice(err))
	}
	return attr
}

// resolveNamespaces reads the definitions from the flag, otherwise from the environment.
func (a *App) resolveNamespaces() error {
	a.settings.only = nil
	var definitions []string
	for _, value := range a.settings.namespaces {
		if strings.Contains(value, "=") {
			definitions = append(definitions, value)
		} else {
			a.settings.only = append(a.settings.only, value)
		}
	}
	source := "--namespace"
	if list := os.Getenv("PGLATCH_NAMESPACES"); definitions == nil && list != "" {
		definitions, source = strings.Split(list, ","), "PGLATCH_NAMESPACES"
	}
	all := make([]namespace.Namespace, len(definitions))
	for i, definition := range definitions {
		var err error
		if all[i], err = ParseNamespace(source, strings.TrimSpace(definition)); err != nil {
			return err
		}
	}
	var err error
	if a.namespaces, err = namespace.NewSet(all...); err != nil {
		return UsageError("%s: %w", source, err)
	}
	if with, err := namespace.NewSet(append(all, Plain)...); err == nil { // otherwise a program uses its number or name
		a.namespaces = with
	}
	return nil
}

// ParseNamespace parses name=number from source.
func ParseNamespace(source, definition string) (namespace.Namespace, error) {
	name, number, _ := strings.Cut(definition, "=")
	n, err := strconv.Atoi(number)
	if err != nil {
		return namespace.Namespace{}, UsageError("%s is %q: use name=number, as in agent=1", source, definition)
	}
	all, err := namespace.New(n, name)
	if err != nil {
		return all, UsageError("%s is %q: %w", source, definition, err)
	}
	return all, nil
}

// checkFilter refuses filters that cannot match: empty output must mean that nothing is locked.
func (a *App) checkFilter(filters bool) error {
	for _, name := range a.settings.only {
		if !filters {
			return UsageError("--namespace is %q: use name=number, as in agent=1", name)
		}
		_, known := a.namespaces.Named(name)
		if _, err := strconv.ParseInt(name, 10, 32); err != nil && !known {
			return UsageError("--namespace is %q: say its number, as in --namespace agent=1 --namespace agent", name)
		}
	}
	return nil
}

// Colored reports whether text has colors.
func (a *App) Colored() bool {
	switch a.settings.color {
	case "always":
		return true
	case "never":
		return false
	}
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && a.Terminal()
}

// Terminal reports whether stdout is a terminal.
func (a *App) Terminal() bool {
	return IsTerminal(os.Stdout)
}

// IsTerminal reports whether a file is a terminal.
func IsTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
