package reference

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An api is the description of the lock server's HTTP API, as far as the page has it.
type api struct {
	Paths      routes `json:"paths"`
	Components struct {
		Schemas    map[string]schema    `json:"schemas"`
		Parameters map[string]parameter `json:"parameters"`
	} `json:"components"`
}

type (
	routes []route
	route  struct {
		method, path string
		operation
	}
	operation struct {
		Summary    string      `json:"summary"`
		Parameters []parameter `json:"parameters"`
		Body       struct {
			Content map[string]struct {
				Schema schema `json:"schema"`
			} `json:"content"`
		} `json:"requestBody"`
	}
	parameter struct {
		Ref         string `json:"$ref"`
		Name        string `json:"name"`
		In          string `json:"in"`
		Description string `json:"description"`
		Schema      schema `json:"schema"`
	}
	schema struct {
		Ref         string     `json:"$ref"`
		Type        string     `json:"type"`
		Format      string     `json:"format"`
		Description string     `json:"description"`
		Required    []string   `json:"required"`
		Properties  properties `json:"properties"`
		Enum        []string   `json:"enum"`
		Minimum     *int64     `json:"minimum"`
		Maximum     *int64     `json:"maximum"`
		MinLength   *int64     `json:"minLength"`
		MaxLength   *int64     `json:"maxLength"`
	}
	properties []property
	property   struct {
		name string
		schema
	}
)

// UnmarshalJSON keeps the order of the file.
func (r *routes) UnmarshalJSON(text []byte) error {
	return ordered(text, func(path string, value json.RawMessage) error {
		return ordered(value, func(method string, value json.RawMessage) error {
			one := route{method: strings.ToUpper(method), path: path}
			*r = append(*r, one)
			return json.Unmarshal(value, &(*r)[len(*r)-1].operation)
		})
	})
}

// UnmarshalJSON keeps the order of the file.
func (p *properties) UnmarshalJSON(text []byte) error {
	return ordered(text, func(name string, value json.RawMessage) error {
		*p = append(*p, property{name: name})
		return json.Unmarshal(value, &(*p)[len(*p)-1].schema)
	})
}

// ordered calls f for each member of an object.
func ordered(text []byte, f func(name string, value json.RawMessage) error) error {
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	if _, err := decoder.Token(); err != nil {
		return err
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return err
		}
		if err := f(fmt.Sprint(name), value); err != nil {
			return err
		}
	}
	return nil
}

func readAPI(tb testing.TB) (a api) {
	tb.Helper()
	text, err := os.ReadFile(filepath.Join(root, "lease/leaseserver/openapi.json"))
	require.NoError(tb, err)
	require.NoError(tb, json.Unmarshal(text, &a))
	return a
}

// ofRoutes lists the routes.
func ofRoutes(a api) string {
	var rows [][]string
	for _, r := range a.Paths {
		rows = append(rows, []string{code(r.method + " " + r.path), r.takes(a), prose(r.Summary)})
	}
	return table([]string{"route", "body or parameters", "does"}, rows)
}

// takes lists the fields of the body, the required ones first, and the parameters.
func (r route) takes(a api) string {
	var parts []string
	body := a.resolve(r.Body.Content["application/json"].Schema)
	if len(body.Required) > 0 {
		parts = append(parts, codes(body.Required))
	}
	var optional []string
	for _, p := range body.Properties {
		if !slices.Contains(body.Required, p.name) {
			optional = append(optional, p.name)
		}
	}
	if len(optional) > 0 {
		parts = append(parts, "optional "+codes(optional))
	}
	var query []string
	for _, p := range r.Parameters {
		if p.In == "query" {
			query = append(query, "?"+p.Name+"=")
		}
	}
	if len(query) > 0 {
		parts = append(parts, codes(query))
	}
	return strings.Join(parts, "; ")
}

func (a api) resolve(s schema) schema {
	if s.Ref != "" {
		return a.Components.Schemas[s.Ref[strings.LastIndex(s.Ref, "/")+1:]]
	}
	return s
}

// ofParameters lists the parameters of the routes' queries.
func ofParameters(a api) string {
	var rows [][]string
	for _, r := range a.Paths {
		for _, p := range r.Parameters {
			if p.In == "query" {
				rows = append(rows, []string{code(r.method + " " + r.path), code(p.Name), bounds(p.Schema), prose(p.Description)})
			}
		}
	}
	return table([]string{"route", "parameter", "values", "meaning"}, rows)
}

// ofSchema lists the fields of a body.
func ofSchema(a api, names ...string) string {
	var rows [][]string
	seen := map[string]bool{}
	for _, name := range names {
		s := a.Components.Schemas[name]
		for _, p := range s.Properties {
			p.schema = a.resolve(p.schema)
			if key := p.name + p.Description; !seen[key] {
				seen[key] = true
				rows = append(rows, []string{code(p.name), kind(p.schema), bounds(p.schema), prose(p.Description)})
			}
		}
	}
	return table([]string{"field", "type", "values", "meaning"}, rows)
}

func kind(s schema) string {
	if s.Format != "" {
		return s.Type + ", " + s.Format
	}
	return s.Type
}

// bounds are the values that a schema allows.
func bounds(s schema) string {
	switch {
	case len(s.Enum) > 4:
		return ""
	case len(s.Enum) > 0:
		return codes(s.Enum)
	case s.Minimum != nil && s.Maximum != nil:
		return fmt.Sprintf("%d to %d", *s.Minimum, *s.Maximum)
	case s.Minimum != nil:
		return fmt.Sprintf("from %d", *s.Minimum)
	case s.MaxLength != nil:
		least := int64(0)
		if s.MinLength != nil {
			least = *s.MinLength
		}
		return fmt.Sprintf("%d to %d bytes", least, *s.MaxLength)
	}
	return ""
}
