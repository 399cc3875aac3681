package sqlite_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"

	"github.com/pglatch/pglatch/lease/sqlite"
)

// A disk knows which writes of SQLite a power failure may undo: those after the last sync of
// their file.
type disk struct {
	path string

	mu    sync.Mutex
	files map[string]*diskFile // by suffix
	hook  func(suffix string) error
	again bool // what the store writes again is written
}

// A diskFile is a file as the system shows it, and as the disk has it.
type diskFile struct {
	shown, kept []byte
	pending     []write // not synced
}

type write struct {
	at   int
	text []byte // nil = the file is cut there
}

func (w write) apply(text []byte) []byte {
	if end := w.at + len(w.text); end > len(text) {
		text = append(text, make([]byte, end-len(text))...)
	}
	if w.text == nil {
		return text[:w.at]
	}
	copy(text[w.at:], w.text)
	return text
}

// newDisk is a disk for a store at path, with what is shown and kept of its files.
func newDisk(t *testing.T, path string, shown, kept files) *disk {
	t.Helper()
	register()
	d := &disk{path: path, files: make(map[string]*diskFile), hook: func(string) error { return nil }, again: true}
	shown.write(t, path)
	if shown != nil {
		require.NoError(t, os.Chtimes(path+"-wal", longAgo, longAgo))
	}
	for _, suffix := range []string{"", "-wal"} {
		d.files[suffix] = &diskFile{shown: bytes.Clone(shown[suffix]), kept: bytes.Clone(kept[suffix])}
	}
	disks.Store(path, d)
	t.Cleanup(func() { disks.Delete(path) })
	return d
}

// open opens a store on the disk. What the store writes again itself, the disk keeps.
func (d *disk) open(t *testing.T, cfg sqlite.Config, pragmas ...string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.OpenOnVFS(t.Context(), d.path, cfg, vfsName, d.rewritten, pragmas...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

var longAgo = time.Unix(1, 0)

func (d *disk) rewritten(f *os.File) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	d.mu.Lock()
	if wal := d.files["-wal"]; d.again && info.ModTime().After(longAgo) {
		wal.pending = append(wal.pending, write{0, bytes.Clone(wal.shown)})
	}
	d.mu.Unlock()
	return d.sync("-wal")
}

// onSync calls hook before each sync. If hook fails, so does the sync. Then the system shows what
// it did not write, and writes it no more.
func (d *disk) onSync(hook func(suffix string) error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hook = hook
}

func (d *disk) sync(suffix string) error {
	d.mu.Lock()
	hook := d.hook
	d.mu.Unlock()
	err := hook(suffix)
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[suffix]
	if err == nil {
		for _, w := range f.pending {
			f.kept = w.apply(f.kept)
		}
	}
	f.pending = nil
	return err
}

func (d *disk) write(suffix string, w write) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.files[suffix]
	f.shown = w.apply(f.shown)
	f.pending = append(f.pending, w)
}

// killed is what a process finds after the last was killed, powerless what one finds after a power
// failure: some of what was not synced, in parts.
func (d *disk) killed(t *testing.T) files {
	t.Helper()
	return d.image(t, func(f *diskFile) []byte { return f.shown })
}

func (d *disk) powerless(t *testing.T) files {
	t.Helper()
	return d.image(t, func(f *diskFile) []byte {
		const sector = 512
		text, share := bytes.Clone(f.kept), rand.Float64()
		for _, w := range f.pending {
			if w.text == nil && rand.Float64() < share {
				text = w.apply(text)
			}
			for at := range slices.Chunk(w.text, sector) {
				if part := (write{w.at, at}); rand.Float64() < share {
					text = part.apply(text)
				}
				w.at += len(at)
			}
		}
		return text
	})
}

func (d *disk) image(t *testing.T, what func(*diskFile) []byte) files {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make(files)
	for suffix, f := range d.files {
		all[suffix] = bytes.Clone(what(f))
	}
	lock, err := os.ReadFile(d.path + ".lock")
	require.NoError(t, err)
	all[".lock"] = lock
	return all
}

// disks are the disks of files, by path. A file has SQLite's VFS in which a disk sees writes and
// syncs: https://www.sqlite.org/vfs.html.
var disks sync.Map

const vfsName = "disk"

// An onDisk is an open file of SQLite whose writes a disk sees.
type onDisk struct {
	*disk

	suffix  string
	methods *lib.Tsqlite3_io_methods // SQLite's own
}

var (
	opened   sync.Map // by the address of the file
	ownVFS   *lib.Tsqlite3_vfs
	register = sync.OnceFunc(func() {
		tls := libc.NewTLS()
		ownVFS = at[lib.Tsqlite3_vfs](lib.Xsqlite3_vfs_find(tls, 0))
		vfs := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(*ownVFS)))
		copied := at[lib.Tsqlite3_vfs](vfs)
		*copied = *ownVFS
		copied.FzName, _ = libc.CString(vfsName)
		copied.FxOpen, copied.FxDelete = pointer(vfsOpen), pointer(vfsDelete)
		lib.Xsqlite3_vfs_register(tls, vfs, 0)
	})
)

func at[T any](p uintptr) *T { return *(**T)(unsafe.Pointer(&p)) }

// pointer is a function as SQLite calls it, function one of SQLite's as Go calls it.
func pointer[F any](f F) uintptr { return *(*uintptr)(unsafe.Pointer(&f)) }

func function[F any](p uintptr) F { return *(*F)(unsafe.Pointer(&p)) }

func vfsOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](ownVFS.FxOpen)(tls, vfs, name, file, flags, out)
	if rc != lib.SQLITE_OK || name == 0 {
		return rc
	}
	path := strings.TrimSuffix(libc.GoString(name), "-wal")
	d, ok := disks.Load(path)
	if !ok {
		return rc
	}
	f := at[lib.Tsqlite3_file](file)
	o := onDisk{disk: d.(*disk), suffix: libc.GoString(name)[len(path):], methods: at[lib.Tsqlite3_io_methods](f.FpMethods)}
	f.FpMethods = libc.Xmalloc(tls, libc.Tsize_t(unsafe.Sizeof(*o.methods))) // for good
	m := at[lib.Tsqlite3_io_methods](f.FpMethods)
	*m = *o.methods
	m.FxWrite, m.FxTruncate, m.FxSync = pointer(vfsWrite), pointer(vfsTruncate), pointer(vfsSync)
	opened.Store(file, o)
	return rc
}

func vfsDelete(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
	path := libc.GoString(name)
	if d, ok := disks.Load(strings.TrimSuffix(path, "-wal")); ok && strings.HasSuffix(path, "-wal") {
		d := d.(*disk)
		d.mu.Lock()
		d.files["-wal"] = new(diskFile)
		d.mu.Unlock()
	}
	return function[func(*libc.TLS, uintptr, uintptr, int32) int32](ownVFS.FxDelete)(tls, vfs, name, syncDir)
}

func vfsFile(file uintptr) onDisk {
	o, _ := opened.Load(file)
	return o.(onDisk)
}

func vfsWrite(tls *libc.TLS, file, text uintptr, n int32, offset int64) int32 {
	o := vfsFile(file)
	o.write(o.suffix, write{int(offset), bytes.Clone(unsafe.Slice(at[byte](text), n))})
	return function[func(*libc.TLS, uintptr, uintptr, int32, int64) int32](o.methods.FxWrite)(tls, file, text, n, offset)
}

func vfsTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	o := vfsFile(file)
	o.write(o.suffix, write{at: int(size)})
	return function[func(*libc.TLS, uintptr, int64) int32](o.methods.FxTruncate)(tls, file, size)
}

func vfsSync(_ *libc.TLS, file uintptr, _ int32) int32 {
	o := vfsFile(file)
	if o.sync(o.suffix) != nil {
		return lib.SQLITE_IOERR_FSYNC
	}
	return lib.SQLITE_OK
}
