package agents

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/labstack/echo/v4"
)

// A configEditor changes the JSON file at its path, which other editors may change too, in this process and in other
// processes of this host. Readers need no lock: they see the whole file from before or after a change.
type configEditor string

// edit passes the file's current content to change and writes the result. Until then no other editor reads the file. On
// an error the file is unchanged.
func (e configEditor) edit(change func(config map[string]any)) (config map[string]any, err error) {
	unlock, err := lockFile(string(e) + ".lock")
	if err != nil {
		return nil, fmt.Errorf("agents: edit config: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	text, err := os.ReadFile(string(e))
	if errors.Is(err, fs.ErrNotExist) {
		text, err = []byte("{}"), nil
	}
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err == nil && config == nil {
		err = errors.New("it is no JSON object")
	}
	if err == nil {
		change(config)
		err = e.write(config)
	}
	if err != nil {
		return nil, fmt.Errorf("agents: edit config: %s: %w", e, err)
	}
	return config, nil
}

// lockFile locks the file at path and waits without a time limit. The lock excludes other
// threads and other processes of this host. The file is never renamed or deleted: a rename puts
// another file at the path, and a lock on the old file excludes nobody.
func lockFile(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		return nil, errors.Join(&os.PathError{Op: "flock", Path: path, Err: err}, f.Close())
	}
	return f.Close, nil // closing unlocks
}

// write replaces the old file with a new one, which is complete and synced to disk before it gets the name.
func (e configEditor) write(config map[string]any) error {
	text, err := json.MarshalIndent(config, "", "  ")
	if err != nil {
		return err
	}
	dir := filepath.Dir(string(e))
	f, err := os.CreateTemp(dir, filepath.Base(string(e))+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), string(e))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
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

// serve answers PATCH, with a JSON Merge Patch, with the file's new content.
func (e configEditor) serve(c echo.Context) error {
	var patch map[string]any
	body := http.MaxBytesReader(c.Response(), c.Request().Body, maxBody)
	if err := json.NewDecoder(body).Decode(&patch); err != nil {
		return refuse(http.StatusBadRequest, "the body is not a JSON object")
	}
	config, err := e.edit(func(config map[string]any) { merge(config, patch) })
	if err != nil {
		return err
	}
	return c.JSON(http.StatusOK, config)
}
