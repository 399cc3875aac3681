// Command prose reports the sentences of pages and of Go doc comments that are hard to read: those of more than 30 words, and those
// with a construction that reads like a translation. Its arguments are directories. It ends with 1 if it finds any.
//
//	go run ./cmd/prose ..
package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	found, err := run(os.Args[1:])
	for _, f := range found {
		fmt.Println(f)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "prose:", err)
	}
	if err != nil || len(found) > 0 {
		os.Exit(1)
	}
}

// run checks all files below the directories.
func run(dirs []string) (found []finding, err error) {
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
				found = append(found, p.check(path)...)
			}
			return err
		})
		if err != nil {
			return found, err
		}
	}
	return found, nil
}
