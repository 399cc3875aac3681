package clients_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/clitest"
	"github.com/pglatch/pglatch/internal/test/pgtest"
)

// files are what a user copies, and the page that says so.
var files = map[string]string{"python": "python/pglatch.py", "typescript": "typescript/pglatch.mjs"}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	return string(text)
}

func TestClientsAreShort(t *testing.T) {
	t.Parallel()
	for name, file := range files {
		assert.LessOrEqual(t, strings.Count(read(t, file), "\n"), 600, file)
		assert.LessOrEqual(t, strings.Count(read(t, name+"/README.md"), "\n"), 90, name)
	}
}

// The imports of a module, and what is called one in JSDoc.
var imported = regexp.MustCompile(`(?m)^import .*from '([^']+)'|^(?:import|from) ([a-z_.]+)`)

func TestClientsImportNothingButWhatTheLanguageHas(t *testing.T) {
	t.Parallel()
	var all int
	for _, file := range files {
		for _, m := range imported.FindAllStringSubmatch(read(t, file), -1) {
			all++
			if m[1] != "" {
				assert.True(t, strings.HasPrefix(m[1], "node:"), m[1])
				continue
			}
			assert.Contains(t, strings.Fields("collections contextlib http.client ipaddress json logging os random secrets socket ssl threading time urllib.parse"), m[2])
		}
	}
	assert.Greater(t, all, 10)
}

func TestEveryKindOfProblemIsKnown(t *testing.T) {
	t.Parallel()
	kinds := regexp.MustCompile(`pglatch/problems/([a-z-]+)"`).FindAllStringSubmatch(read(t, "../lease/leaseserver/openapi.json"), -1)
	require.Greater(t, len(kinds), 10)
	for _, kind := range kinds {
		if kind[1] == "store-unavailable" || kind[1] == "internal" {
			continue // the outcome is unknown
		}
		for _, file := range files {
			assert.Regexp(t, `['" ]`+kind[1]+`['"]?: [A-Z]`, read(t, file), "%s in %s", kind[1], file)
		}
	}
}

var program = regexp.MustCompile("(?s)```(?:js|python)\n(.*?)```")

func TestTheProgramsOfThePagesRun(t *testing.T) {
	t.Parallel()
	inEach(t, func(t *testing.T, l language) {
		t.Helper()
		s := serve(t, "")
		var text string
		for _, part := range program.FindAllStringSubmatch(read(t, l.name+"/README.md"), -1) {
			text += strings.ReplaceAll(part[1], "localhost:8080", s.address)
		}
		dir := t.TempDir()
		client := filepath.Base(files[l.name])
		for name, content := range map[string]string{client: read(t, files[l.name]), "main" + filepath.Ext(client): text} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
		}
		p := clitest.StartCommand(t, []string{"PYTHONDONTWRITEBYTECODE=1"}, l.program, filepath.Join(dir, "main"+filepath.Ext(client)))
		assert.Zero(t, p.Wait(), p.Stderr.String())
		assert.Contains(t, p.Stdout.String(), "works with token 1")
		assert.Equal(t, "FREE", direct(t, s, "nightly-report").State)
		assert.Contains(t, p.Stdout.String(), "trains on slot 1")
		assert.Contains(t, p.Stdout.String(), "has 3 of 3")
		assert.Contains(t, p.Stdout.String(), "continues with token 1")
		for _, name := range []string{"gpu::slot::0001", "shard-1", "migration"} {
			assert.Equal(t, "FREE", direct(t, s, name).State)
		}
	})
}

// Versions of what checks the types.
const (
	compiler  = "typescript@5.9.3"
	nodeTypes = "@types/node@18.19.130"
)

const config = `{"compilerOptions": {"strict": true, "allowJs": true, "checkJs": true, "target": "es2022", "module": "nodenext", "types": ["node"],
	"lib": ["es2022", "esnext.disposable", "dom"], %s}, "files": [%s]}`

// usage is a program that the types allow.
const usage = `import { Client, Held, PglatchError, type Lease } from './pglatch.mjs'
export async function work(): Promise<bigint> {
  const client = new Client(['http://localhost:8080'], { ttl: 5000, token: 'x' })
  await using lease: Lease = await client.hold('x', { wait: 0, metadata: { a: 'b' } })
  const signal: AbortSignal = lease.signal
  const share = await client.acquire('z', { slots: 2 }), fence: bigint | undefined = share.fence
  const adopted: Lease = await client.adopt(share.name, share.owner, share.id)
  for (const r of await client.acquireAll(['a', 'b'], { mode: fence ? 'shared' : 'exclusive' })) {
    if (r instanceof PglatchError) throw r
    r.check()
  }
  await client.renewAll([share, adopted])
  await client.releaseAll(new Set([share, adopted]))
  return signal.aborted ? 0n : client.do('y', async (l) => l.token).catch((e: unknown) => { if (e instanceof Held) return BigInt(e.retry); throw e })
}
`

func TestTheTypesAreThoseOfTheClient(t *testing.T) {
	t.Parallel()
	pgtest.Long(t)
	need(t, "npm")
	dir := t.TempDir()
	run := func(name string, args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = dir
		output, err := cmd.CombinedOutput()
		return string(output), err
	}
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	output, err := run("npm", "install", "--prefix", dir, "--no-save", "--prefer-offline", "--no-audit", "--no-fund", "--ignore-scripts", compiler, nodeTypes)
	require.NoError(t, err, output)
	tsc := filepath.Join(dir, "node_modules", ".bin", "tsc")

	write("pglatch.mjs", read(t, "typescript/pglatch.mjs"))
	write("tsconfig.json", strings.NewReplacer("%s]}", `"pglatch.mjs"]}`, "%s}", `"skipLibCheck": true, "declaration": true, "emitDeclarationOnly": true, "outDir": "out"}`).Replace(config))
	output, err = run(tsc)
	require.NoError(t, err, output)
	assert.Equal(t, read(t, filepath.Join(dir, "out", "pglatch.d.mts")), read(t, "typescript/pglatch.d.mts"), "make it of pglatch.mjs by tsc")

	require.NoError(t, os.Remove(filepath.Join(dir, "pglatch.mjs")))
	write("pglatch.d.mts", read(t, "typescript/pglatch.d.mts"))
	write("tsconfig.json", strings.NewReplacer("%s]}", `"use.mts", "misuse.mts"]}`, "%s}", `"noEmit": true}`).Replace(config))
	write("use.mts", usage)
	write("misuse.mts", usage+"export const token: number = (await new Client('x').acquire('x')).token\n")
	output, err = run(tsc)
	require.Error(t, err, "the control: a token is no number")
	assert.Contains(t, output, "'bigint' is not assignable to type 'number'")
	assert.Equal(t, 1, strings.Count(output, "error TS"), output)
}
