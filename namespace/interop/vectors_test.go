package interop_test

import (
	_ "embed"
	"encoding/json"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pglatch/pglatch/internal/test/frozen"
	"github.com/pglatch/pglatch/namespace"
	"github.com/pglatch/pglatch/namespace/interop"
)

//go:embed testdata/vectors.json
var vectorsJSON []byte

// A vector is arguments and the key that they give, of one number or two.
type vector [2]json.RawMessage

// keys call each function with the arguments of a vector.
var keys = map[string]func(args []string) namespace.Key{
	"Goose":              func([]string) namespace.Key { return interop.Goose() },
	"Prisma":             func([]string) namespace.Key { return interop.Prisma() },
	"NodePgMigrate":      func([]string) namespace.Key { return interop.NodePgMigrate() },
	"PostgresMigrations": func([]string) namespace.Key { return interop.PostgresMigrations() },
	"Tern":               func([]string) namespace.Key { return interop.Tern() },
	"Sqitch":             func([]string) namespace.Key { return interop.Sqitch() },
	"GolangMigrate":      func(a []string) namespace.Key { return interop.GolangMigrate(a[0], a[1:]...) },
	"Rails":              func(a []string) namespace.Key { return interop.Rails(a[0]) },
	"SQLx":               func(a []string) namespace.Key { return interop.SQLx(a[0]) },
	"Flyway":             func(a []string) namespace.Key { return interop.Flyway(a[0], a[1]) },
	"PgBoss":             func(a []string) namespace.Key { return interop.PgBoss(a[0], a[1]) },
	"WithAdvisoryLock": func(a []string) namespace.Key {
		prefix, err := strconv.ParseInt(a[1], 10, 64)
		if err != nil {
			return namespace.Key{}
		}
		return interop.WithAdvisoryLock(a[0], prefix)
	},
	"GoodJob":         func(a []string) namespace.Key { return interop.GoodJob(a[0]) },
	"Symfony":         func(a []string) namespace.Key { return interop.Symfony(a[0]) },
	"DjangoPglock":    func(a []string) namespace.Key { return interop.DjangoPglock(a[0]) },
	"DistributedLock": func(a []string) namespace.Key { return interop.DistributedLock(a[0]) },
}

func TestTheKeysOfOtherToolsAreThoseOfTheFrozenVectors(t *testing.T) {
	t.Parallel()
	var vectors map[string][]vector
	require.NoError(t, json.Unmarshal(vectorsJSON, &vectors))
	require.Len(t, vectors, len(keys), "each function has vectors")
	for name, all := range vectors {
		require.Contains(t, keys, name)
		require.NotEmpty(t, all)
		for _, v := range all {
			var args []string
			var want []int64
			require.NoError(t, json.Unmarshal(v[0], &args))
			require.NoError(t, json.Unmarshal(v[1], &want))
			key := namespace.SingleRaw(want[0])
			if len(want) == 2 {
				key = namespace.Pair(int32(want[0]), int32(want[1]))
			}
			assert.Equal(t, key.Tag(), keys[name](args).Tag(), "%s(%q): %s", name, args, frozen.Message)
		}
	}
}

// An append to the caller's slice would change what the caller has.
func TestNamesOfTheCallerStayAsTheyAre(t *testing.T) {
	t.Parallel()
	backing := []string{"public", "schema_migrations", "mine"}
	interop.GolangMigrate("shop", backing[:2]...)
	require.Equal(t, "mine", backing[2])
}
