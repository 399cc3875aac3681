package imports_test

import (
	"bufio"
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// outside matches the directories of tests, demos and tools. They import what they like, and no floor imports them.
var outside = regexp.MustCompile(`^(internal/test|cmd/internal/test|clients|compat|docs|examples|integration|spec|tools)(/|$)|(^|/)testdata(/|$)`)

// A house assigns rooms to floors. A room is a directory with its subdirectories, except those that are rooms themselves.
type house map[string]int

// readHouse reads the floors of CONTRIBUTING: indented lines of a number and the floor's rooms.
func readHouse(t *testing.T, name string) house {
	t.Helper()
	line := regexp.MustCompile(`^    (\d) +([a-z0-9/* ]+)$`)
	h := house{}
	lines := bufio.NewScanner(strings.NewReader(readFile(t, name)))
	for lines.Scan() {
		m := line.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		floor, err := strconv.Atoi(m[1])
		require.NoError(t, err)
		for room := range strings.FieldsSeq(m[2]) {
			require.NotContains(t, h, room, "it is on two floors")
			h[room] = floor
		}
	}
	return h
}

// room is the room of a directory, "" without one.
func (h house) room(dir string) string {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, ok := h[dir]; ok {
			return dir
		}
	}
	return ""
}

// arrows returns the imports between rooms: for each room, those that it imports.
func (h house) arrows(imports map[string][]string) map[string][]string {
	all := map[string][]string{}
	for dir, imported := range imports {
		from := h.room(dir)
		for _, pkg := range imported {
			if to := h.room(pkg); to != from && !slices.Contains(all[from], to) {
				all[from] = append(all[from], to)
			}
		}
	}
	for _, rooms := range all {
		slices.Sort(rooms)
	}
	return all
}

// wrong lists the packages without a room, and the imports that do not point down.
func (h house) wrong(imports map[string][]string) (errors []string) {
	for _, dir := range slices.Sorted(maps.Keys(imports)) {
		room := h.room(dir)
		if room == "" {
			errors = append(errors, dir+" is on no floor")
			continue
		}
		for _, pkg := range imports[dir] {
			switch to := h.room(pkg); {
			case outside.MatchString(pkg):
				errors = append(errors, fmt.Sprintf("%s imports %s, which is for tests", dir, pkg))
			case to != room && h[to] >= h[room]:
				errors = append(errors, fmt.Sprintf("%s on floor %d imports %s on floor %d", dir, h[room], pkg, h[to]))
			}
		}
	}
	return errors
}

// draw shows each floor with its rooms, the highest first, and what they import.
func (h house) draw(imports map[string][]string) string {
	var s strings.Builder
	arrows := h.arrows(imports)
	rooms := slices.SortedFunc(maps.Keys(h), func(a, b string) int {
		if h[a] != h[b] {
			return h[b] - h[a]
		}
		return strings.Compare(a, b)
	})
	for _, room := range rooms {
		fmt.Fprintf(&s, "%d  %-24s → %s\n", h[room], room, strings.Join(arrows[room], " "))
	}
	return s.String()
}

// ourImports returns our packages that each package imports, by directories, in all modules and for all systems.
func ourImports(t *testing.T, root string) map[string][]string {
	t.Helper()
	imports := map[string][]string{}
	require.NoError(t, filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		file, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		dir := path.Dir(filepath.ToSlash(file))
		switch {
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && file != "." || outside.MatchString(filepath.ToSlash(file))):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go"):
			return nil
		}
		source, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		imports[dir] = slices.Grow(imports[dir], 1)
		for _, spec := range source.Imports {
			pkg, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if ours, ok := strings.CutPrefix(pkg, module+"/"); ok && !slices.Contains(imports[dir], ours) {
				imports[dir] = append(imports[dir], ours)
			}
		}
		return nil
	}))
	return imports
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	h, imports := readHouse(t, filepath.Join(root, "CONTRIBUTING.md")), ourImports(t, root)
	t.Logf("each room and those that it imports:\n%s", h.draw(imports))
	assert.Greater(t, len(imports), 80)
	assert.Empty(t, h.wrong(imports))
	for room := range h {
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(room)))
		assert.NoError(t, err, "a room that is not there")
	}
}

func TestAnImportThatDoesNotPointDownIsFound(t *testing.T) {
	t.Parallel()
	h := house{"ground": 1, "left": 2, "right": 2, "left/top": 3}
	assert.Empty(t, h.wrong(map[string][]string{"ground": nil, "left": {"ground"}, "left/part": {"left"}, "left/top": {"left/part", "right"}}))
	for from, to := range map[string]string{"ground": "left", "left": "right", "left/part": "left/top", "right": "internal/test/pgtest", "new": "ground"} {
		assert.Len(t, h.wrong(map[string][]string{from: {to}}), 1, "%s imports %s", from, to)
	}
}
