package pgserver

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// An account is the user that the server runs as: PostgreSQL refuses to run as root.
type account struct {
	name     string
	uid, gid int
	drop     bool // this process is root and must change the user
}

func serverAccount() (account, error) {
	if os.Geteuid() != 0 {
		return account{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return account{}, err
		}
		return account{name: name, uid: uid, gid: gid, drop: true}, nil
	}
	return account{}, errors.New("pgserver: PostgreSQL refuses to run as root and there is no user postgres or nobody: run as another user")
}

// command is exec.Command as the account, in a separate session (so that Ctrl-C does not reach it), without
// the caller's PG* variables.
func (a account) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "TZ=UTC"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.drop {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// prefixed is command behind a prefix that itself needs this process's rights, such as ip netns exec.
func (a account) prefixed(ctx context.Context, prefix []string, name string, args ...string) *exec.Cmd {
	if len(prefix) == 0 {
		return a.command(ctx, name, args...)
	}
	argv := append([]string{}, prefix[1:]...)
	if a.drop {
		argv = append(argv, "setpriv", "--reuid", strconv.Itoa(a.uid), "--regid", strconv.Itoa(a.gid), "--clear-groups")
	}
	argv = append(append(argv, name), args...)
	return account{}.command(ctx, prefix[0], argv...)
}

// mkdir makes a directory that belongs to the account.
func (a account) mkdir(path string, mode os.FileMode) error {
	if err := os.Mkdir(path, mode); err != nil {
		return err
	}
	return a.own(path)
}

func (a account) own(path string) error {
	if !a.drop {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
