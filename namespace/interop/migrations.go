package interop

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/pglatch/pglatch/namespace"
)

// Goose is the key of goose's PostgreSQL session locker, without its WithLockID.
func Goose() namespace.Key { return namespace.SingleRaw(4097083626) }

// GolangMigrate is the key of golang-migrate's drivers postgres, pgx and pgx5: what its
// database.GenerateAdvisoryLockId computes. Those drivers pass the schema and the name of the
// table of migrations, which are "public" and "schema_migrations" unless configured:
//
//	interop.GolangMigrate("shop", "public", "schema_migrations")
//
// If the driver was opened by a URL, as migrate.New and the command do, the database name is
// the path of the URL including its slash, "/shop". A driver from WithInstance has only the
// name. The two do not exclude each other.
func GolangMigrate(databaseName string, additionalNames ...string) namespace.Key {
	const salt = 1486364155
	name := strings.Join(append(slices.Clip(additionalNames), databaseName), "\x00")
	return namespace.SingleRaw(int64(crc32.ChecksumIEEE([]byte(name)) * salt)) // the product in 32 bits, as there
}

// Rails is the key of Active Record's migrations.
func Rails(databaseName string) namespace.Key { return timesCRC32(2053462845, databaseName) }

// SQLx is the key of the migrations of the Rust library sqlx and of its command.
func SQLx(databaseName string) namespace.Key { return timesCRC32(0x3d32ad9e, databaseName) }

func timesCRC32(salt int64, name string) namespace.Key {
	return namespace.SingleRaw(salt * int64(crc32.ChecksumIEEE([]byte(name))))
}

// Flyway is the key of Flyway's migrations, which depends on the schema and the name of its
// table of migrations, "flyway_schema_history" unless configured.
func Flyway(schema, table string) namespace.Key {
	quote := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
	var hash int32 // of Java's String
	for _, c := range utf16.Encode([]rune(quote(schema) + "." + quote(table))) {
		hash = 31*hash + int32(c)
	}
	const flyway = 0x46<<40 + 0x6c<<32 + 0x79<<24 + 0x77<<16 + 0x61<<8 + 0x79
	return namespace.SingleRaw(flyway + int64(hash))
}

// Prisma is the key of Prisma Migrate.
func Prisma() namespace.Key { return namespace.SingleRaw(72707369) }

// NodePgMigrate is the key of node-pg-migrate, without its lockValue.
func NodePgMigrate() namespace.Key { return namespace.SingleRaw(7241865325823964) }

// PostgresMigrations is the key of the npm package postgres-migrations.
func PostgresMigrations() namespace.Key { return namespace.SingleRaw(-8525285245963000605) }

// Tern is the key of tern.
func Tern() namespace.Key { return namespace.SingleRaw(9628173550095224) }

// Sqitch is the key of Sqitch.
func Sqitch() namespace.Key { return namespace.SingleRaw(75474063) }

// PgBoss is the key under which pg-boss makes and changes its schema, "pgboss" unless configured.
func PgBoss(databaseName, schema string) namespace.Key {
	sum := sha256.Sum224([]byte(databaseName + ".pgboss." + schema))
	return namespace.SingleRaw(int64(binary.BigEndian.Uint64(sum[:])))
}
