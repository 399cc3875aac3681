package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"

	"github.com/labstack/echo/v4"
)

// A ConfigEditor changes a JSON file that other editors may change too, in this process and
// in other processes of this host. Readers need no lock: they see the whole file from before
// or after a change.
type ConfigEditor struct{ path string }

// NewConfigEditor returns an editor of the file at path, which need not exist.
func NewConfigEditor(path string) *ConfigEditor { return &ConfigEditor{path: path} }

// Merge applies a JSON Merge Patch (RFC 7396) and returns the file's new content.
func (e *ConfigEditor) Merge(patch map[string]any) (map[string]any, error) {
	return e.Edit(func(config map[string]any) error {
		merge(config, patch)
		return nil
	})
}

// Edit passes the file's current content to change and writes the result. Until then no other
// editor reads the file. On an error the file is unchanged.
func (e *ConfigEditor) Edit(change func(config map[string]any) error) (config map[string]any, err error) {
	unlock, err := lockFile(e.path)
	if err != nil {
		return nil, fmt.Errorf("agents: edit config: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if config, err = e.read(); err != nil {
		return nil, fmt.Errorf("agents: edit config: %w", err)
	}
	if err := change(config); err != nil {
		return nil, err
	}
	if err := e.write(config); err != nil {
		return nil, fmt.Errorf("agents: edit config: %w", err)
	}
	return config, nil
}

func (e *ConfigEditor) read() (map[string]any, error) {
	text, err := os.ReadFile(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]any{}, nil
	}
	if err != nil {
		return nil, err
	}
	config := map[string]any{}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", e.path, err)
	}
	return config, nil
}

// write replaces the old file with a new one, which is complete and synced to disk before it
// gets the name.
func (e *ConfigEditor) write(config map[string]any) error {
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(e.path)
	f, err := os.CreateTemp(dir, filepath.Base(e.path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), e.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncDir(dir)
}

// syncDir syncs a directory's entries to disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// merge applies an RFC 7396 patch: null deletes, objects merge, all other values replace.
func merge(into, patch map[string]any) {
	for name, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(into, name)
		case map[string]any:
			inner, ok := into[name].(map[string]any)
			if !ok {
				inner = map[string]any{}
				into[name] = inner
			}
			merge(inner, value)
		default:
			into[name] = value
		}
	}
}

// serveConfig answers PATCH with the file's new content.
func serveConfig(editor *ConfigEditor) echo.HandlerFunc {
	return func(c echo.Context) error {
		var patch map[string]any
		body := http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)
		if err := json.NewDecoder(body).Decode(&patch); err != nil && !errors.Is(err, io.EOF) {
			return echo.NewHTTPError(http.StatusBadRequest, "the body is not a JSON object")
		}
		config, err := editor.Merge(patch)
		if err != nil {
			return err
		}
		return c.JSON(http.StatusOK, config)
	}
}
