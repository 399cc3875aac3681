package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"runtime/debug"
	"strings"
)

// A bill is a software bill of materials of one program: CycloneDX 1.5, JSON. It has no time and no random number, so
// that the same program has the same bill.
type bill struct {
	Schema     string      `json:"$schema"`
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type       string     `json:"type"`
	Ref        string     `json:"bom-ref"`
	Name       string     `json:"name"`
	Version    string     `json:"version"`
	PURL       string     `json:"purl"`
	Hashes     []hash     `json:"hashes,omitempty"`
	Properties []property `json:"properties,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type property struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// settings of a build that a bill names.
var settings = []string{"GOOS", "GOARCH", "CGO_ENABLED", "-trimpath", "vcs.revision", "vcs.modified"}

// billOf reads what the go command wrote into a program: its modules, their versions and go.sum lines, and the settings
// of the build. content is the program.
func billOf(file string, content []byte) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return json.MarshalIndent(newBill(info, content), "", "  ")
}

func newBill(info *debug.BuildInfo, content []byte) bill {
	program := library(info.Main)
	program.Type = "application"
	sum := sha256.Sum256(content)
	program.Hashes = []hash{{"SHA-256", hex.EncodeToString(sum[:])}}
	for _, name := range settings {
		for _, s := range info.Settings {
			if s.Key == name {
				program.Properties = append(program.Properties, property{"go:build:" + name, s.Value})
			}
		}
	}
	b := bill{
		Schema: "http://cyclonedx.org/schema/bom-1.5.schema.json", Format: "CycloneDX", Spec: "1.5", Version: 1,
		Metadata:   metadata{program},
		Components: []component{library(debug.Module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go")})},
	}
	for _, m := range info.Deps {
		b.Components = append(b.Components, library(*m))
	}
	return b
}

// library describes a module, or its replacement if it has one.
func library(m debug.Module) component {
	used := *cmp.Or(m.Replace, &m)
	// A part of a purl's name is escaped; the slashes between parts are not.
	parts := strings.Split(used.Path, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	purl := "pkg:golang/" + strings.Join(parts, "/") + "@" + url.QueryEscape(used.Version)
	c := component{Type: "library", Ref: purl, Name: used.Path, Version: used.Version, PURL: purl}
	if used.Sum != "" { // a hash of the list of its files' hashes, as in go.sum
		c.Properties = append(c.Properties, property{"go:sum", used.Sum})
	}
	if m.Replace != nil {
		c.Properties = append(c.Properties, property{"go:replaces", m.Path + "@" + m.Version})
	}
	return c
}
