// Command prose reports the sentences of pages and of Go doc comments that are hard to read: those of more than 30 words, and those
// with a construction that reads like a translation. Its arguments are directories. It ends with 1 if it finds any.
//
//	go run ./cmd/prose ..
//
// With -draw it prints that many sentences of its arguments, which can be files too, drawn at random by -seed. Fresh eyes then judge
// whether any of them has to be read twice.
//
//	go run ./cmd/prose -draw 100 -seed 1 ../docs/tutorials
package main

import (
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	draw := flag.Int("draw", 0, "print `N` sentences drawn at random")
	seed := flag.Uint64("seed", 1, "of the draw")
	flag.Parse()
	var found []finding
	var err error
	if *draw > 0 {
		err = read(flag.Args(), func(path string, p paragraph) {
			for _, sentence := range p.sentences() {
				found = append(found, finding{path, p.line, "", sentence})
			}
		})
		found = drawn(found, *draw, *seed)
	} else {
		found, err = run(flag.Args())
	}
	for _, f := range found {
		fmt.Println(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
	}
	if err != nil || *draw == 0 && len(found) > 0 {
		os.Exit(1)
	}
}

// drawn returns n sentences in a random order that the seed decides.
func drawn(all []finding, n int, seed uint64) []finding {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the draw can be repeated
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// run checks all files below the directories.
func run(dirs []string) (found []finding, err error) {
	err = read(dirs, func(path string, p paragraph) { found = append(found, p.check(path)...) })
	return found, err
}

// read calls f for each paragraph of the files below the directories.
func read(dirs []string, f func(path string, p paragraph)) error {
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && path != dir && (strings.HasPrefix(entry.Name(), ".") || slices.Contains([]string{"testdata", "node_modules", "dist", "bin"}, entry.Name())):
				return filepath.SkipDir
			case entry.IsDir():
				return nil
			}
			var paragraphs []paragraph
			switch {
			case strings.HasSuffix(path, ".md"):
				paragraphs, err = ofPage(path)
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				paragraphs, err = ofSource(path)
			}
			for _, p := range paragraphs {
				f(path, p)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
