// Package file elects a leader among the processes of one host with one JSON file,
// for local work, CI, and machines that have nothing else.
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
//	leader.json.lock       empty; whoever changes the others has a flock on it
//	leader.json.term       the last term and its lease
//	leader.json*.tmp-*     what a killed process left; the next leader removes it after a minute
//	leader.json.corrupt-*  what WithRepair replaced
//
// Of two elections in a directory, neither file has a name that the other keeps for these:
// names that end in .term or .lock, or contain .tmp- or .corrupt-, are refused.
//
// All processes run as one user who may write in the directory. The file is read
// without the lock and replaced as a whole: a temporary file is written and synced,
// renamed under the lock, and the directory is synced before a call succeeds. The lock
// is held for the comparison and the rename alone, some tenths of a millisecond. If another
// process has it for 100 to 200 ms in which nothing changes, because it was stopped there,
// a new file takes the place of leader.json.lock, and the temporary files of all others
// are removed: what the stopped process does when it goes on fails, and it begins anew.
//
// The first three fields are also another program's to write, for whom an empty
// holder means that nobody leads. Beside them are version, acquireTime, pid, term (as
// "1.42"), incarnation (random, of one leadership of one Backend), released (the last
// leadership ended in good order), clock and clockTime. An operator who empties
// holder, while no process writes, ends a leadership: its leader learns it by its next
// renewal.
//
// # Which clock decides
//
// Never the wall clock: renewTime is for readers. clockTime is CLOCK_BOOTTIME of Linux,
// which all processes of a boot share, which runs on while the machine is suspended,
// and which nobody sets; clock is the kernel's boot id (and the offset of a time
// namespace).
//
//	clock is this process's   the lease ends at clockTime + leaseDuration, exactly
//	clock is another, or none the lease ends leaseDuration after this Backend saw the file as it is now
//
// The second is the rule for a record from before a reboot, whose leader is dead, for
// one that was written by hand, by another program, or on another machine over a
// network file system, whose leader may live: the file does not say which. So after a
// reboot an election waits for one more lease. Outside of Linux, without /proc,
// or where CLOCK_BOOTTIME cannot be read, every process has a clock of its own, and takeovers after a crash take one lease
// from when the successor first looked.
//
// # What it guarantees
//
//   - One leader at a time among the processes of a kernel, containers included if they
//     mount the directory, whatever the wall clock does and whenever a process is
//     stopped or killed, as far as the leader stops by its own clock: see package leader.
//   - Terms rise, also past a lost or damaged leader.json: they are counted in
//     leader.json.term before they begin.
//   - Two Backends of one identity exclude each other. A renewal is of the leadership
//     that TryAcquire began, never of a later one. Renew never reports that it renewed a
//     lease that had ended, even if nobody took leadership.
//   - What is not a whole record is an error and is not overwritten.
//
// # What it does not guarantee
//
//   - Anything between machines. Over NFS and SMB flock may be emulated, local to
//     each client, or lost when the connection is (flock(2)), and names are cached. The
//     leases of other machines are waited for, but two of them may write at a time. Nor
//     between virtual machines that were cloned from one running one: they share
//     a boot id, and no clock.
//   - Terms without gaps: an attempt that lost the lock, or was killed, between the two files
//     leaves a term that nobody leads in.
//   - An answer from a file system that hangs: ctx does not end a system call.
//   - Anything when leader.json.lock is removed while processes run, which they notice
//     in most cases and then write nothing, or leader.json and leader.json.term both:
//     then the election begins anew, at term 1.1.
//   - Anything by two names of the file, by hard links or by mounting the file alone. A
//     symbolic link is refused.
//   - Windows: the package compiles there and is not tested.
//
// # A file that is damaged
//
// A *CorruptError says what is wrong. Followers do not lead, and a leader's renewals
// fail until it stops by its own clock, unless the file is mended before. To remove the file is
// safe if this package wrote it: it is waited for as long as a leader could trust
// it, the greatest lease that leader.json.term has for its term, and then terms go on. Of
// what another program wrote, that knows nothing; and who removes a file that was
// mended stops the leader first.
//
// WithRepair does the same by itself: an attempt fails with a *CorruptError that says
// when the file will be replaced; after one lease in which it did not change, the next
// attempt keeps it as leader.json.corrupt-<time> and leads. It does not replace a file of a
// newer version, what is no regular file, or a damaged leader.json.term; and if that was
// removed or restored from a backup as well, terms can repeat.
//
// # When something fails
//
//	leader is killed             a successor leads when the lease ends
//	leader releases              a successor leads within some 30 ms
//	leader is stopped            the same as killed; when it wakes Renew says ErrLost
//	... while it has the lock    the same, and the next change by others takes 100 to 200 ms more
//	disk is full, or read-only   an error; nothing is changed; the leader stops before its lease ends
//	directory is missing         an error
//	machine loses power          the file is as of some change; a term that was given out is not given out again
//	leader.json is removed       Renew says ErrLost; another leads one lease later
package file
