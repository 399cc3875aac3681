package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// A Report is the result of one run.
type Report struct {
	Machine  Machine       `json:"machine"`
	Rounds   int           `json:"rounds"`
	Duration time.Duration `json:"duration_ns"` // of a system's turn
	Rows     Rows          `json:"results"`
	Figures  []Figure      `json:"figures"`

	Titles map[string]string `json:"-"` // of the systems
	Order  []string          `json:"-"` // of the systems
}

// Write writes latest.json, latest.md and latest.svg into a directory.
func (r *Report) Write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(r); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"latest.json": text.Bytes(), "latest.md": []byte(r.Markdown()), "latest.svg": []byte(r.SVG())} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
