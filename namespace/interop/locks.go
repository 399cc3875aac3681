package interop

import (
	"crypto/md5"  //nolint:gosec // good_job's choice; nothing is protected by it
	"crypto/sha1" //nolint:gosec // DistributedLock's choice; nothing is protected by it
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"strconv"

	"github.com/pglatch/pglatch/namespace"
)

// WithAdvisoryLock is the key of the Ruby gem with_advisory_lock for a name that is text. prefix
// is the result of Ruby's to_i on the environment variable WITH_ADVISORY_LOCK_PREFIX; 0 = it is
// not set.
func WithAdvisoryLock(name string, prefix int64) namespace.Key {
	return namespace.Pair(int32(crc32.ChecksumIEEE([]byte(name))&0x7fffffff), int32(prefix&0x7fffffff))
}

// GoodJob is the key of the Ruby gem good_job, with its hash md5, for a text. For a job, the text is
// "good_jobs-" followed by the job's id (in some versions its active_job_id). For any other record, it is the
// name of the table, a hyphen and the value of the column that the gem locks.
func GoodJob(lockableKey string) namespace.Key {
	sum := md5.Sum([]byte(lockableKey)) //nolint:gosec // see above
	return namespace.SingleRaw(int64(binary.BigEndian.Uint64(sum[:])))
}

// Symfony is the key of Symfony's PostgreSqlStore and DoctrineDbalPostgreSqlStore for a resource:
// its CRC32.
func Symfony(resource string) namespace.Key {
	return namespace.SingleRaw(int64(crc32.ChecksumIEEE([]byte(resource))))
}

// DjangoPglock is the key of django-pglock for a lock ID that is text. The key of a number
// is the number itself: namespace.SingleRaw(number).
func DjangoPglock(lockID string) namespace.Key {
	sum := sha256.Sum256([]byte(lockID))
	return namespace.SingleRaw(int64(binary.LittleEndian.Uint64(sum[:])))
}

// DistributedLock is the key of .NET's DistributedLock.Postgres for a name, new
// PostgresAdvisoryLockKey(name, allowHashing: true): a pair for at most nine ASCII characters and
// for "XXXXXXXX,XXXXXXXX" in hexadecimal, the number itself for 16 hexadecimal digits, else a
// hash. Keys that are made from numbers are namespace.SingleRaw(key) and namespace.Pair(key1,
// key2).
func DistributedLock(name string) namespace.Key {
	if packed, ok := packASCII(name); ok {
		return namespace.Pair(int32(packed>>32), int32(packed))
	}
	if len(name) == 16 {
		if n, err := strconv.ParseUint(name, 16, 64); err == nil {
			return namespace.SingleRaw(int64(n))
		}
	}
	if len(name) == 17 && name[8] == ',' {
		k1, err1 := strconv.ParseUint(name[:8], 16, 32)
		k2, err2 := strconv.ParseUint(name[9:], 16, 32)
		if err1 == nil && err2 == nil {
			return namespace.Pair(int32(k1), int32(k2))
		}
	}
	sum := sha1.Sum([]byte(name)) //nolint:gosec // see above
	return namespace.SingleRaw(int64(binary.LittleEndian.Uint64(sum[:])))
}

// packASCII packs up to nine characters of seven bits, a 0 as their end, and ones after it.
func packASCII(name string) (packed uint64, ok bool) {
	const length = 9
	if len(name) > length {
		return 0, false
	}
	for _, c := range []byte(name) {
		if c > 0x7f {
			return 0, false
		}
		packed = packed<<7 | uint64(c)
	}
	packed <<= 1
	for range length - len(name) {
		packed = packed<<7 | 0x7f
	}
	return packed, true
}
