// Package file elects a leader among the processes of one host with one JSON file, for local work, CI, and
// machines that have nothing else.
//
//	package main
//
//	import (
//		"context"
//		"log"
//		"os"
//		"os/signal"
//
//		"github.com/pglatch/pglatch/leader"
//		"github.com/pglatch/pglatch/leader/file"
//	)
//
//	func main() {
//		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
//		defer stop()
//		backend := file.NewBackend("/var/lib/scheduler/leader.json")
//		elector, err := leader.New(leader.Config{Name: "scheduler", Backend: backend})
//		if err != nil {
//			log.Fatal(err)
//		}
//		err = elector.Run(ctx, func(ctx context.Context) error { // in one process at a time
//			<-ctx.Done()
//			return nil
//		})
//		log.Print(err)
//	}
//
// # The files
//
//	leader.json            {"holder": "node-a", "renewTime": "2026-01-02T03:04:05.678Z", "leaseDuration": "15s", …}
//	leader.json.lock       empty; a process that changes the others has a flock on it
//	leader.json.term       the last term and its lease
//	leader.json*.tmp-*     left by a killed process; the next leader removes it after a minute
//	leader.json.corrupt-*  replaced by WithRepair
//
// Names that end in .term or .lock, or contain .tmp- or .corrupt-, are refused. So two elections in one
// directory never use each other's files.
//
// All processes run as one user who may write in the directory. They read the file without the lock and
// replace it as a whole. A process writes and syncs a temporary file, renames it under the lock, and syncs
// the directory before a call succeeds. It holds the lock only for the comparison and the rename, some tenths
// of a millisecond.
//
// If a process is stopped there, it keeps the lock. After 100 to 200 ms in which nothing changes, another
// process replaces leader.json.lock with a new file, and removes the temporary files of all others. When the
// stopped process resumes, its change fails, and it begins anew.
//
// Other programs may also write the first three fields; an empty holder means that nobody leads. The other
// fields are version, acquireTime, pid, term (as "1.42"), incarnation (random, of one leadership of one
// Backend), released (the last leadership ended in good order), clock and clockTime. An operator who empties
// holder, while no process writes, ends a leadership. Its leader learns of it at its next renewal.
//
// # Which clock decides
//
// Never the wall clock: renewTime is for readers. clockTime is CLOCK_BOOTTIME of Linux. All processes of a
// boot share it, it keeps running while the machine is suspended, and nobody can set it. clock is the
// kernel's boot id (and the offset of a time namespace).
//
//	clock is this process's   the lease ends at clockTime + leaseDuration, exactly
//	clock is another, or none the lease ends leaseDuration after this Backend saw the file as it is now
//
// The second rule is for two kinds of records, which the file does not distinguish:
//
//   - A record from before a reboot, whose leader is dead.
//   - A record that was written by hand, by another program, or on another machine over a network file
//     system, whose leader may live.
//
// So after a reboot an election waits for one more lease. Outside of Linux, without /proc, or where
// CLOCK_BOOTTIME cannot be read, every process has a clock of its own. Takeovers after a crash then take one
// lease from when the successor first looked.
//
// # What it guarantees
//
//   - One leader at a time among the processes of a kernel, containers included if they mount the directory.
//     This holds whatever the wall clock does and whenever a process is stopped or killed, as far as the
//     leader stops by its own clock: see package leader.
//   - Terms rise, even if leader.json is lost or damaged: they are counted in leader.json.term before they
//     begin.
//   - Two Backends of one identity exclude each other. A renewal is of the leadership that TryAcquire began,
//     never of a later one. Renew never reports success for a lease that had ended, even if nobody took
//     leadership.
//   - Anything but a whole record is an error and is not overwritten.
//
// # What it does not guarantee
//
//   - Anything between machines. Over NFS and SMB flock may be emulated, local to each client, or lost with
//     the connection (flock(2)), and names are cached. A node waits for the lease of another machine to end,
//     but two machines may write at a time.
//   - Anything between virtual machines that were cloned from one running machine: they share a boot id, and
//     no clock.
//   - Terms without gaps: an attempt that lost the lock, or was killed, between the two files leaves a term
//     in which nobody leads.
//   - An answer while the file system hangs: ctx does not end a system call.
//   - Anything if leader.json.lock is removed while processes run. In most cases the processes detect
//     that, and then write nothing.
//   - Anything if leader.json and leader.json.term are both removed: then the election begins anew, at term
//     1.1.
//   - Anything if the file has two names, by hard links or by mounting the file alone. A symbolic link is
//     refused.
//   - Windows: the package compiles there and is not tested.
//
// # A file that is damaged
//
// A *CorruptError describes the damage. Followers do not lead, and a leader's renewals fail until it stops by
// its own clock, unless the file is repaired before.
//
// If this package wrote the file, it is safe to remove it. Candidates then wait for as long as a leader could
// trust the file: the greatest lease that leader.json.term has for its term. Then terms continue.
// leader.json.term knows nothing of records that another program wrote. Before you remove a file that was
// repaired, stop the leader.
//
// WithRepair does the same automatically. An attempt fails with a *CorruptError that says when the file will
// be replaced. After one lease in which the file did not change, the next attempt keeps it as
// leader.json.corrupt-<time> and leads. WithRepair does not replace a file of a newer version, a file that is
// not regular, or a damaged leader.json.term. If leader.json.term was removed or restored from a backup as
// well, terms can repeat.
//
// # When something fails
//
//	leader is killed             a successor leads when the lease ends
//	leader releases              a successor leads within some 30 ms
//	leader is stopped            the same as killed; when it resumes Renew returns ErrLost
//	... while it has the lock    the same, and the next change by others takes 100 to 200 ms more
//	disk is full, or read-only   an error; nothing is changed; the leader stops before its lease ends
//	directory is missing         an error
//	machine loses power          the file is as of some change; a term that was given out is not given out again
//	leader.json is removed       Renew returns ErrLost; another leads one lease later
package file
