// Package etcdtest runs etcd for tests and measurements: members of the version in go.mod, in this
// process or in processes of their own, which a test can kill and stop.
package etcdtest

import (
	"cmp"
	"errors"
	"net/url"
	"time"

	"go.etcd.io/etcd/api/v3/version"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
)

// Version returns the version of the servers.
func Version() string { return version.Version }

// A Member is the configuration of an etcd member. Only Dir is required.
type Member struct {
	Name    string // "" = default
	Dir     string // where it keeps its data
	Peers   string // URL for the other members; "" = any port of the loopback
	Clients string // URL for clients; "" = any port of the loopback
	Cluster string // name=URL of the peers of all members; "" = a single member
	Token   string // of the cluster
	Joins   bool   // a running cluster that expects it, unless Dir shows that it has joined

	TLS     bool  // for clients, with a certificate of its own in Dir/fixtures/client/cert.pem
	Quota   int64 // bytes of the database, beyond which it refuses changes; 0 = etcd's default
	AuthTTL uint  // seconds that the token of a user lasts unused; 0 = etcd's default

	// Certificate and Key are files in PEM for clients, instead of TLS. With Authority clients
	// need a certificate of that authority.
	Certificate, Key, Authority string

	NoFsync   bool
	Heartbeat time.Duration // 0 = etcd's default, 100 ms; elections come after ten
	Force     bool          // begin a new cluster with this member's data
}

// Serve runs a member in this process until stop is called. address is its client URL.
func Serve(m Member) (address string, stop func(), err error) {
	c := embed.NewConfig()
	c.Name, c.Dir, c.UnsafeNoFsync, c.ForceNewCluster = cmp.Or(m.Name, c.Name), m.Dir, m.NoFsync, m.Force
	c.LogLevel = "fatal"
	c.BcryptCost = 4 // the minimum: it takes long with the race detector
	if m.Heartbeat > 0 {
		c.TickMs, c.ElectionMs = uint(m.Heartbeat.Milliseconds()), uint(10*m.Heartbeat.Milliseconds())
	}
	const anyPort = "http://127.0.0.1:0"
	scheme := "http"
	if m.TLS {
		scheme, c.ClientAutoTLS, c.SelfSignedCertValidity = "https", true, 1
	}
	if m.Certificate != "" {
		scheme, c.ClientTLSInfo = "https", transport.TLSInfo{CertFile: m.Certificate, KeyFile: m.Key, TrustedCAFile: m.Authority, ClientCertAuth: m.Authority != ""}
	}
	peers, err := url.Parse(cmp.Or(m.Peers, anyPort))
	if err != nil {
		return "", nil, err
	}
	clients, err := url.Parse(cmp.Or(m.Clients, scheme+"://127.0.0.1:0"))
	if err != nil {
		return "", nil, err
	}
	c.ListenPeerUrls, c.ListenClientUrls = []url.URL{*peers}, []url.URL{*clients}
	if m.Peers != "" {
		c.AdvertisePeerUrls, c.AdvertiseClientUrls = c.ListenPeerUrls, c.ListenClientUrls
		c.InitialCluster = cmp.Or(m.Cluster, c.Name+"="+m.Peers)
	}
	if m.Joins {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	c.QuotaBackendBytes = m.Quota
	c.AuthTokenTTL = cmp.Or(m.AuthTTL, c.AuthTokenTTL)
	c.InitialClusterToken = cmp.Or(m.Token, c.InitialClusterToken)
	server, err := embed.StartEtcd(c)
	if err != nil {
		return "", nil, err
	}
	address = scheme + "://" + server.Clients[0].Addr().String()
	if m.Cluster != "" { // the others may not run yet
		return address, server.Close, nil
	}
	select {
	case <-server.Server.ReadyNotify():
		return address, server.Close, nil
	case <-time.After(time.Minute):
		server.Close()
		return "", nil, errors.New("etcd does not start")
	}
}
