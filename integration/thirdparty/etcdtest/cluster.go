package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
)

// FreeAddresses returns loopback addresses at which nobody listens. A killed process must find its
// own address free when it comes back, so the ports are none that the system gives to connections.
func FreeAddresses(ctx context.Context, n int) (found []string, err error) {
	for range 1000 {
		if len(found) == n {
			return found, nil
		}
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if err != nil {
			continue
		}
		defer listener.Close() //nolint:errcheck // until all are found, so that no one is found twice
		found = append(found, address)
	}
	return nil, errors.New("no free ports on 127.0.0.1")
}

// StartCluster starts size members, m1 and so on, on loopback addresses. They keep their data in
// dir. The caller must kill the members that it returns, even with an error.
func StartCluster(ctx context.Context, dir string, size int) (members []*Process, err error) {
	addresses, err := FreeAddresses(ctx, 2*size)
	if err != nil {
		return nil, err
	}
	var peers []string
	for i := range size {
		peers = append(peers, fmt.Sprintf("m%d=http://%s", i+1, addresses[i]))
	}
	for i := range size {
		name := fmt.Sprintf("m%d", i+1)
		m, err := Start(Member{
			Name: name, Dir: filepath.Join(dir, name), Cluster: strings.Join(peers, ","),
			Peers: "http://" + addresses[i], Clients: "http://" + addresses[size+i],
		})
		if err != nil {
			return members, err
		}
		members = append(members, m)
	}
	return members, nil
}
