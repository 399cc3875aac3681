// Command arrows counts how many calls between the files of a package point up. Its arguments are the module's directory and packages.
//
//	go run -C tools ./cmd/arrows .. ./advisory ./internal/locktable
//
// A file has an arrow to another if one of its functions calls a function of the other. Arrows that point up are those that remain against
// the best order of the files that it finds: a local search from random orders, with a fixed seed.
package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/tools/go/packages"
)

// An arrow leads from a calling file to a called one.
type arrow struct{ from, to string }

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "use: arrows DIR PACKAGE...")
		os.Exit(2)
	}
	loaded, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedDeps,
		Dir:  os.Args[1],
	}, os.Args[2:]...)
	if err != nil || packages.PrintErrors(loaded) > 0 {
		fmt.Fprintln(os.Stderr, "arrows:", err)
		os.Exit(1)
	}
	for _, p := range loaded {
		arrows := arrowsOf(p)
		files, up := order(arrows)
		fmt.Printf("%s: %d of %d arrows point up\n  %v\n", p.PkgPath, len(up), len(arrows), files)
		for _, a := range up {
			fmt.Printf("  %s → %s\n", a.from, a.to)
		}
	}
}

// arrowsOf returns the calls between the files of a package.
func arrowsOf(p *packages.Package) map[arrow]struct{} {
	arrows := make(map[arrow]struct{})
	for _, f := range p.Syntax {
		from := filepath.Base(p.Fset.Position(f.Pos()).Filename)
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			var name *ast.Ident
			switch f := ast.Unparen(call.Fun).(type) {
			case *ast.Ident:
				name = f
			case *ast.SelectorExpr:
				name = f.Sel
			}
			if f, ok := p.TypesInfo.Uses[name].(*types.Func); ok && f.Pkg() == p.Types {
				if to := filepath.Base(p.Fset.Position(f.Pos()).Filename); to != from {
					arrows[arrow{from, to}] = struct{}{}
				}
			}
			return true
		})
	}
	return arrows
}

// order returns the files in an order against which few arrows point up, and those arrows.
func order(arrows map[arrow]struct{}) (best []string, up []arrow) {
	var files []string
	for a := range arrows {
		files = append(files, a.from, a.to)
	}
	slices.Sort(files)
	files = slices.Compact(files)
	rng := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // repeatable
	for try := range 60 {
		rng.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
		for improve(files, arrows) {
		}
		if found := pointUp(files, arrows); try == 0 || len(found) < len(up) {
			best, up = slices.Clone(files), found
		}
	}
	return best, up
}

// improve moves one file, if fewer arrows then point up.
func improve(files []string, arrows map[arrow]struct{}) bool {
	for i, f := range files {
		gain, most, to := 0, 0, i
		count := func(j, up, down int) {
			if _, ok := arrows[arrow{f, files[j]}]; ok {
				gain += up
			}
			if _, ok := arrows[arrow{files[j], f}]; ok {
				gain += down
			}
			if gain > most {
				most, to = gain, j
			}
		}
		for j := i - 1; j >= 0; j-- { // f passes before files[j]
			count(j, 1, -1)
		}
		gain = 0
		for j := i + 1; j < len(files); j++ { // f passes behind files[j]
			count(j, -1, 1)
		}
		if most > 0 {
			copy(files, slices.Insert(slices.Delete(slices.Clone(files), i, i+1), to, f))
			return true
		}
	}
	return false
}

// pointUp returns the arrows against an order.
func pointUp(files []string, arrows map[arrow]struct{}) []arrow {
	at := make(map[string]int)
	for i, f := range files {
		at[f] = i
	}
	var up []arrow
	for a := range maps.Keys(arrows) {
		if at[a.from] > at[a.to] {
			up = append(up, a)
		}
	}
	slices.SortFunc(up, func(a, b arrow) int { return at[a.from]*len(files) + at[a.to] - at[b.from]*len(files) - at[b.to] })
	return up
}
