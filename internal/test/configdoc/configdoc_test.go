package configdoc

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const source = `package p

const DefaultSize = 4 << 10

type Config struct {
	// Wait bounds a request. It is a bound. 0 = 15 s; at least 1 s.
	Wait time.Duration

	// Size is how large it is, in bytes. See F. 0 = DefaultSize.
	Size, Step int

	// Part is a third of Wait. 0 = Wait/3.
	//
	// More of it.
	Part time.Duration

	// Off switches it off. false = it is on. true = it is off.
	Off  bool
	Also []string
	hidden int

	// Log receives:
	//
	//   - Error: panics
	//   - Info: the
	//     rest
	//
	// nil = discard.
	Log any

	// Name names it. Required, and unique.
	Name string
}
`

type Config struct {
	Wait       time.Duration
	Size, Step int
	Part       time.Duration
	Off        bool
	Also       []string
	Log        any
	Name       string
}

func write(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "p.go"), []byte(source), 0o600))
	return dir
}

func TestACommentIsTakenApart(t *testing.T) {
	t.Parallel()
	assert.Equal(t, []Field{
		{Names: []string{"Wait"}, Type: "time.Duration", Default: "15 s", Limits: "at least 1 s", Meaning: "bounds a request. It is a bound"},
		{Names: []string{"Size", "Step"}, Type: "int", Default: "4 KiB", Meaning: "how large it is, in bytes"},
		{Names: []string{"Part"}, Type: "time.Duration", Default: "Wait/3", Meaning: "a third of Wait"},
		{Names: []string{"Off", "Also"}, Type: "bool, []string", Meaning: "switches it off. False: it is on. True: it is off"},
		{Names: []string{"Log"}, Type: "any", Default: "discard", Meaning: "receives: Error: panics; Info: the rest"},
		{Names: []string{"Name"}, Type: "string", Default: Required, Limits: "and unique", Meaning: "names it"},
	}, Fields(t, write(t), "Config"))
}

func TestADefaultThatTheCommentDoesNotSayIsFound(t *testing.T) {
	t.Parallel()
	dir := write(t)
	good := Config{Wait: 15 * time.Second, Size: 4096, Step: 4096, Part: 5 * time.Second}
	found := func(c Config) []string { return check(t, dir, reflect.ValueOf(c), nil) }
	assert.Empty(t, found(good))

	other := good
	other.Wait = 14 * time.Second
	assert.Len(t, found(other), 2, "Wait, and its third")
	other = good
	other.Step = 0
	assert.Equal(t, []string{`Step is set to 0, and its comment says "4 KiB"`}, found(other))
	assert.Empty(t, check(t, dir, reflect.ValueOf(other), []string{"Step"}))
}
