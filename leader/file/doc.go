// Package file elects a leader among the processes of one host by a JSON file, for local work, CI, and
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
// All processes must run as the same user, with permission to write in the directory. They read the file without the
// lock and replace it as a whole. Before a call succeeds, the process writes and syncs a temporary file,
// renames it under the lock, and syncs the directory. It holds the lock only for the comparison and the
// rename, some tenths of a millisecond.
//
// If a process is stopped while it holds the lock, it keeps the lock. After 100 to 200 ms in which nothing
// changes, another process replaces leader.json.lock with a new file, and removes the temporary files of all
// others. When the stopped process resumes, its change fails, and it starts over.
//
// Other programs may also write the first three fields; an empty holder means that nobody leads. The other
// fields are version, acquireTime, pid, term (as "1.42"), incarnation (random, of one leadership of one
// Backend), released (the last leadership ended in good order), clock and clockTime. To end a leadership, an
// operator can empty the field holder while no process writes. The leader detects this at its next renewal.
//
// # Which clock decides
//
// The wall clock never decides: renewTime is for people. clockTime is CLOCK_BOOTTIME of Linux. All
// processes of a boot share it, it keeps running while the machine is suspended, and nobody can set it.
// clock is the kernel's boot id (and the offset of a time namespace).
//
//	clock is this process's   the lease ends at clockTime + leaseDuration, exactly
//	clock is another, or none the lease ends leaseDuration after this Backend first saw the present content
//
// The second rule is for two kinds of records, which the file does not distinguish:
//
//   - A record from before a reboot. Its leader is dead.
//   - A record that was written by hand, by another program, or on another machine over a network file
//     system. Its leader may be alive.
//
// So after a reboot, an election waits for one more lease duration. On other systems than Linux, without
// /proc, or where CLOCK_BOOTTIME cannot be read, every process has its own clock. After a crash, a takeover
// then takes one lease duration, counted from when the successor first read the file.
//
// # What it guarantees
//
//   - One leader at a time among the processes of a kernel, containers included if they mount the directory.
//     This is true whatever the wall clock does, and at whatever moment a process is stopped or killed,
//     provided that the leader stops by its own clock: see package leader.
//   - Terms rise, even if leader.json is lost or damaged: they are counted in leader.json.term before they
//     begin.
//   - Two Backends with the same identity exclude each other. A renewal extends only the leadership that
//     TryAcquire began, never a later one. Renew never reports success for a lease that had ended, even if
//     nobody took leadership.
//   - If the file is not a complete record, that is an error, and the file is not overwritten.
//
// # What it does not guarantee
//
//   - Anything between machines. Over NFS and SMB flock may be emulated, local to each client, or lost with
//     the connection (flock(2)), and names are cached. A node waits for the lease of another machine to end,
//     but two machines may write at the same time.
//   - Anything between virtual machines that were cloned from one running machine: they have the same boot
//     id, but different clocks.
//   - Terms without gaps: if an attempt loses the lock or is killed between its writes of the two files, it
//     leaves a term in which nobody leads.
//   - An answer while the file system hangs: ctx does not end a system call.
//   - Anything if leader.json.lock is removed while processes run. In most cases the processes detect
//     that, and then write nothing.
//   - Anything if leader.json and leader.json.term are both removed: then the election starts over at term
//     1.1.
//   - Anything if the file has two names, because of hard links, or because only the file is mounted. A
//     symbolic link is refused.
//   - Anything on Windows: the package compiles there, but is not tested.
//
// # A file that is damaged
//
// A *CorruptError describes the damage. Followers do not become leaders, and a leader's renewals fail until
// it stops by its own clock, unless the file is repaired before that.
//
// If this package wrote the file, it is safe to remove it. Candidates then wait for as long as a leader could
// trust the file: the longest lease that leader.json.term records for the last term. Then terms continue.
// leader.json.term does not contain records that a person or another program wrote. So before you remove a file
// that was repaired by hand, stop the leader.
//
// WithRepair does the same automatically. An attempt fails with a *CorruptError that says when the file will be
// replaced. After one lease in which the file did not change, the next attempt keeps the corrupt file as
// leader.json.corrupt-<time>, and leads. WithRepair does not replace a file of a newer version, a file that is
// not regular, or a damaged leader.json.term. If leader.json.term was removed or restored from a backup as
// well, terms can repeat.
//
// # When something fails
//
//	leader is killed             a successor leads when the lease ends
//	leader releases              a successor leads within some 30 ms
//	leader is stopped            the same as killed; when it resumes, Renew returns ErrLost
//	... while it has the lock    the same, and the next change by others takes 100 to 200 ms more
//	disk is full, or read-only   an error; nothing is changed; the leader stops before its lease ends
//	directory is missing         an error
//	machine loses power          the file shows some earlier change; a term that was given out is not given out again
//	leader.json is removed       Renew returns ErrLost; another leads one lease later
package file
