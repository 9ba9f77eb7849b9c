package embed

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// Config configures a server. The zero Config is a server for tests, on a free port
// and with a temporary folder.
type Config struct {
	// Dir is the data folder; Start creates it with mode 0700. A server that is
	// restarted on the same folder has everything that was acknowledged before. The
	// file system must support unix sockets. Two servers cannot share a folder, see
	// ErrFolderInUse. Empty: a temporary folder, which Close removes.
	Dir string

	// Listen is the address for clients, as host:port. Empty: 127.0.0.1:0, a port
	// that the kernel chooses. Only TLS and etcd's own users protect an address that
	// other machines can reach. etcd's peer listener is a unix socket in a folder
	// that no other user can enter.
	Listen string

	// TLS makes clients connect by TLS. Nil: unencrypted.
	TLS *TLS

	// Tick is the heartbeat interval. An election takes ten ticks, and the shortest
	// lease lasts fifteen, rounded up to whole seconds. 0: 100 ms, etcd's default.
	// It must be from 1 ms to 1 s.
	Tick time.Duration

	// NoFsync acknowledges writes before they are on disk. It is for tests: a
	// machine that loses power may lose acknowledged writes.
	NoFsync bool

	// BcryptCost is the cost of checking the password of one of etcd's users. Each step
	// doubles it. 0: 10, etcd's default, which takes about 50 ms of a core for each
	// login. It must be from 4 to 31; tests use 4.
	BcryptCost int

	// Compaction is how much of the history is kept, so that watches can resume. 0:
	// ten minutes. Older history is removed. It must be at least a second.
	Compaction time.Duration

	// Logger receives etcd's logs at level warning and above, until Close. Nil:
	// nothing is logged.
	Logger *slog.Logger
}

// TLS configures the server's side of TLS. The files are in PEM, and are read at
// every handshake, so that certificates can be replaced while the server runs.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile makes clients show a certificate that one of these authorities
	// has signed. Empty: any client may connect.
	ClientCAFile string
}

// Server is a running server. Its methods may be called from many goroutines at the
// same time.
type Server struct {
	endpoint string
	etcd     *embed.Etcd
	servers  servers
	lock     *fileutil.LockedFile // locks the data folder
	dirs     []string             // removed by Close
	failed   chan error
	watching sync.WaitGroup // for etcd's errors

	close sync.Once
	err   error
}

// Start starts a server and returns when it serves. It fails if ctx is done first; a
// server that still comes up is then stopped. If another server uses the data
// folder, Start waits 3 s for its end, and then fails with [ErrFolderInUse].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{failed: make(chan error, 1)}
	c, err := s.prepare(ctx, cfg)
	if err != nil {
		return nil, errors.Join(err, s.leaveFolder())
	}
	if err := s.launch(ctx, c); err != nil {
		return nil, err
	}
	s.watching.Go(func() {
		for err := range s.etcd.Err() {
			s.fail(err)
		}
	})
	if err := s.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	s.endpoint, err = endpoint(c.ListenClientUrls[0].Scheme, s.etcd.Clients[0].Addr())
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// prepare takes the data folder, and returns the configuration in etcd's own type. After
// an error, the caller leaves the folder.
func (s *Server) prepare(ctx context.Context, cfg Config) (*embed.Config, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "etcd-")
		if err != nil {
			return nil, err
		}
		cfg.Dir, s.dirs = dir, []string{dir}
	}
	c, err := cfg.etcd(&s.servers, s.fail)
	if err != nil {
		return nil, err
	}
	if s.lock, err = takeFolder(ctx, cfg.Dir); err != nil {
		return nil, err
	}
	peers, err := s.peerSocket(cfg.Dir)
	if err != nil {
		return nil, err
	}
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peers}}
	return c, nil
}

// launch calls StartEtcd, which takes no context, and whose duration grows with the data.
// If ctx ends first, launch returns, and an etcd that still starts is stopped. After an
// error, nothing is left, or nothing will be.
func (s *Server) launch(ctx context.Context, c *embed.Config) error {
	type outcome struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan outcome, 1)
	go func() {
		e, err := embed.StartEtcd(c)
		started <- outcome{e, err}
	}()
	select {
	case <-ctx.Done():
		go func() {
			if o := <-started; o.err == nil {
				s.etcd = o.etcd
				_ = s.Close()
				return
			}
			_ = s.leaveFolder()
		}()
		return fmt.Errorf("data folder %s: %w", c.Dir, context.Cause(ctx))
	case o := <-started:
		if o.err != nil {
			return errors.Join(o.err, s.leaveFolder())
		}
		s.etcd = o.etcd
		return nil
	}
}

// awaitReady waits until the server serves.
func (s *Server) awaitReady(ctx context.Context) error {
	select {
	case <-s.etcd.Server.ReadyNotify():
		return nil
	case err := <-s.failed:
		return err
	case <-s.etcd.Server.StopNotify():
		return errors.New("server stopped before it was ready")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// complete sets the defaults. It returns an error if a value is out of range.
func (cfg *Config) complete() error {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if _, _, err := net.SplitHostPort(cfg.Listen); err != nil {
		return fmt.Errorf("invalid Listen %q: must be host:port: %w", cfg.Listen, err)
	}
	if cfg.Tick == 0 {
		cfg.Tick = 100 * time.Millisecond
	}
	if cfg.Tick < time.Millisecond || cfg.Tick > time.Second {
		return fmt.Errorf("invalid Tick %v: must be from 1ms to 1s", cfg.Tick)
	}
	if cfg.BcryptCost == 0 {
		cfg.BcryptCost = 10
	}
	if cfg.BcryptCost < 4 || cfg.BcryptCost > 31 {
		return fmt.Errorf("invalid BcryptCost %d: must be from 4 to 31", cfg.BcryptCost)
	}
	if cfg.Compaction == 0 {
		cfg.Compaction = 10 * time.Minute
	}
	if cfg.Compaction < time.Second {
		return fmt.Errorf("invalid Compaction %v: must be at least 1s", cfg.Compaction)
	}
	return nil
}

// etcd returns the configuration in etcd's own type. Its gRPC servers are added to g, and
// its fatal errors are passed to fail.
func (cfg *Config) etcd(g *servers, fail func(error)) (*embed.Config, error) {
	c := embed.NewConfig()
	c.Dir = cfg.Dir
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: cfg.Listen}}
	if cfg.TLS != nil {
		// etcd exits the process if it cannot read these files.
		if _, err := tls.LoadX509KeyPair(cfg.TLS.CertFile, cfg.TLS.KeyFile); err != nil {
			return nil, fmt.Errorf("TLS certificate: %w", err)
		}
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = cfg.TLS.CertFile, cfg.TLS.KeyFile
		c.ClientTLSInfo.TrustedCAFile = cfg.TLS.ClientCAFile
		c.ClientTLSInfo.ClientCertAuth = cfg.TLS.ClientCAFile != ""
	}
	c.AdvertiseClientUrls = c.ListenClientUrls
	// A single node has no peers, but etcd needs an address to advertise.
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// The cluster's id is a hash of this configuration. Without a random token, a
	// server with an empty folder would look like its predecessor. A server with
	// data keeps its id.
	c.InitialClusterToken = rand.Text()
	c.TickMs = uint(cfg.Tick.Milliseconds())
	c.ElectionMs = 10 * c.TickMs
	c.UnsafeNoFsync = cfg.NoFsync
	c.BcryptCost = uint(cfg.BcryptCost)
	// A full etcd accepts no writes until an operator compacts, defragments and
	// disarms it. A mebibyte that changes every second fills etcd's default of 2 GiB
	// in half an hour.
	c.QuotaBackendBytes = 8 << 30
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = cfg.Compaction.String()
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(cfg.Logger, &g.closing, fail))
	c.ServiceRegister = g.add
	return c, nil
}

// Endpoint returns the URL for clients.
func (s *Server) Endpoint() string { return s.endpoint }

// Err returns a channel that yields the error of a running server that has failed,
// once. It yields nothing after Close, and is never closed.
//
// If the disk is full or fails, etcd must stop. The process then exits with code 1,
// one second after the error appeared on stderr and on this channel.
func (s *Server) Err() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // the first error counts
	}
}

// Close stops the server immediately; clients lose their connections. Further calls
// wait for the first and return the same result.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.servers.stop()
		s.etcd.Close()
		s.watching.Wait()
		s.err = s.leaveFolder()
	})
	return s.err
}

// servers holds the gRPC servers inside etcd. Closing etcd waits for streams as long
// as a request may take, and watches and lease streams do not end before their
// clients. So stop cuts them off first, as the loss of the machine would, which
// clients must survive anyway.
type servers struct {
	closing atomic.Bool // Close was called

	mu   sync.Mutex
	list []*grpc.Server
}

func (g *servers) add(s *grpc.Server) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.list = append(g.list, s)
}

func (g *servers) stop() {
	g.closing.Store(true)
	g.mu.Lock()
	list := g.list
	g.mu.Unlock()
	for _, s := range list {
		cut(s)
	}
}

// cut stops a server. With TLS its calls come through an HTTP server, which takes further ones while
// Stop waits for the end of those that it has cut off. So Stop is called until one returns.
func cut(s *grpc.Server) {
	var stops sync.WaitGroup
	defer stops.Wait()
	for {
		stopped := make(chan struct{})
		stops.Go(func() {
			s.Stop()
			close(stopped)
		})
		select {
		case <-stopped:
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endpoint returns the URL of a listening address.
func endpoint(scheme string, addr net.Addr) (string, error) {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return "", err
	}
	if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port), nil
}
