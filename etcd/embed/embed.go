package embed

// The server: its settings, how it starts and how it is closed.

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

// Config says how a server is to run. The zero Config is a server for tests: on
// a port of its own, with a folder that is gone when it is closed.
type Config struct {
	// Dir is the data folder, made with mode 0700 where it is not there. A server
	// started again on the same folder has everything that the last one had
	// acknowledged. It must be able to hold a unix socket. Two servers never share
	// one: see ErrFolderInUse. Empty: a temporary folder, which Close removes.
	Dir string

	// Listen is the address that clients connect to, as host:port. Empty:
	// 127.0.0.1:0, a port that the kernel chooses. Nothing but TLS and etcd's own
	// users guards an address that others can reach. etcd's peer listener is a unix
	// socket in a folder that only this user can enter.
	Listen string

	// TLS has clients connect by TLS. Nil: in the clear.
	TLS *TLS

	// Tick is the heartbeat; an election takes ten of them, and the shortest
	// lease that is granted lasts fifteen, rounded up to whole seconds. 0: 100 ms,
	// etcd's default. From 1 ms to 1 s.
	Tick time.Duration

	// NoFsync acknowledges writes before they are on the disk. It is for tests: a
	// machine that loses power then loses what it has acknowledged.
	NoFsync bool

	// Compaction is how much of the history is kept, for watches to be resumed
	// from. 0: ten minutes, and what is older takes no space for long. At least a
	// second.
	Compaction time.Duration

	// Logger gets what etcd logs at its levels of warning and above, until Close.
	// Nil: nothing is logged.
	Logger *slog.Logger
}

// TLS is the server's side of TLS, as files in PEM. They are read at every
// handshake, so that certificates can be replaced while the server runs.
type TLS struct {
	CertFile, KeyFile string
	// ClientCAFile has clients show a certificate that one of its authorities has
	// signed. Empty: any client may connect.
	ClientCAFile string
}

// Server is a running server. Its methods may be called from many goroutines at
// once.
type Server struct {
	endpoint string
	etcd     *embed.Etcd
	cut      func()
	lock     *fileutil.LockedFile // of the data folder
	dirs     []string             // which Close removes
	failed   chan error
	watching sync.WaitGroup // etcd's errors

	close sync.Once
	err   error
}

// Start starts a server and returns when it serves. It fails where ctx is done
// before; what comes of the start then is stopped as soon as it can be. Where
// another server has the data folder open, it waits 3 s for that to end, and
// fails with [ErrFolderInUse].
func Start(ctx context.Context, cfg Config) (*Server, error) {
	s, err := start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	return s, nil
}

func start(ctx context.Context, cfg Config) (*Server, error) {
	s := &Server{failed: make(chan error, 1)}
	if cfg.Dir == "" {
		dir, err := os.MkdirTemp("", "etcd-")
		if err != nil {
			return nil, err
		}
		cfg.Dir, s.dirs = dir, []string{dir}
	}
	var grpcServers servers
	s.cut = grpcServers.stop
	c, err := cfg.etcd(&grpcServers, s.fail)
	if err != nil {
		return nil, errors.Join(err, s.leaveFolder())
	}
	if s.lock, err = takeFolder(ctx, cfg.Dir); err != nil {
		return nil, errors.Join(err, s.leaveFolder())
	}
	peers, err := s.peerSocket(cfg.Dir)
	if err != nil {
		return nil, errors.Join(err, s.leaveFolder())
	}
	c.ListenPeerUrls = []url.URL{{Scheme: "unix", Host: peers}}

	// StartEtcd knows no context, and takes as long as the data is large.
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
		return nil, fmt.Errorf("data folder %s: %w", cfg.Dir, context.Cause(ctx))
	case o := <-started:
		if o.err != nil {
			return nil, errors.Join(o.err, s.leaveFolder())
		}
		s.etcd = o.etcd
	}
	s.watching.Go(func() {
		for err := range s.etcd.Err() {
			s.fail(err)
		}
	})

	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.failed:
		return nil, errors.Join(err, s.Close())
	case <-s.etcd.Server.StopNotify():
		return nil, errors.Join(errors.New("the server stopped before it was ready"), s.Close())
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), s.Close())
	}
	s.endpoint, err = endpoint(c.ListenClientUrls[0].Scheme, s.etcd.Clients[0].Addr())
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// etcd is the server's configuration in etcd's words.
func (cfg Config) etcd(g *servers, fail func(error)) (*embed.Config, error) {
	if cfg.Listen == "" {
		cfg.Listen = "127.0.0.1:0"
	}
	if _, _, err := net.SplitHostPort(cfg.Listen); err != nil {
		return nil, fmt.Errorf("invalid Listen %q: has to be host:port: %w", cfg.Listen, err)
	}
	if cfg.Tick == 0 {
		cfg.Tick = 100 * time.Millisecond
	}
	if cfg.Tick < time.Millisecond || cfg.Tick > time.Second {
		return nil, fmt.Errorf("invalid Tick %v: has to be from 1ms to 1s", cfg.Tick)
	}
	if cfg.Compaction == 0 {
		cfg.Compaction = 10 * time.Minute
	}
	if cfg.Compaction < time.Second {
		return nil, fmt.Errorf("invalid Compaction %v: has to be at least 1s", cfg.Compaction)
	}

	c := embed.NewConfig()
	c.Dir = cfg.Dir
	c.ListenClientUrls = []url.URL{{Scheme: "http", Host: cfg.Listen}}
	if cfg.TLS != nil {
		// etcd ends the process where it cannot read them.
		if _, err := tls.LoadX509KeyPair(cfg.TLS.CertFile, cfg.TLS.KeyFile); err != nil {
			return nil, fmt.Errorf("TLS certificate: %w", err)
		}
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = cfg.TLS.CertFile, cfg.TLS.KeyFile
		c.ClientTLSInfo.TrustedCAFile = cfg.TLS.ClientCAFile
		c.ClientTLSInfo.ClientCertAuth = cfg.TLS.ClientCAFile != ""
	}
	c.AdvertiseClientUrls = c.ListenClientUrls
	// One node has no peers, but etcd needs an address to tell them.
	c.AdvertisePeerUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// The cluster's id is a hash of all this: without a token of its own, a server
	// with an empty folder would pass for the one before. One that has data
	// keeps its id.
	c.InitialClusterToken = rand.Text()
	c.TickMs = uint(cfg.Tick.Milliseconds())
	c.ElectionMs = 10 * c.TickMs
	c.UnsafeNoFsync = cfg.NoFsync
	// Once it is full, etcd takes nothing more until somebody compacts, defragments
	// and disarms it: a mebibyte that changes every second fills etcd's own 2 GiB in
	// half an hour.
	c.QuotaBackendBytes = 8 << 30
	c.AutoCompactionMode = embed.CompactorModePeriodic
	c.AutoCompactionRetention = cfg.Compaction.String()
	c.EnableGRPCGateway = false
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zapLogger(cfg.Logger, &g.closing, fail))
	c.ServiceRegister = g.add
	return c, nil
}

// Endpoint returns the URL that clients connect to.
func (s *Server) Endpoint() string { return s.endpoint }

// Endpoints returns the same, in the form that a client's configuration takes.
func (s *Server) Endpoints() []string { return []string{s.endpoint} }

// Err yields why a server that runs has failed, once. It yields nothing while all is
// well, and nothing when Close is called. It is never closed.
//
// If etcd cannot go on, because the disk is full or fails, it must not take part in
// anything any more. Then the process ends with exit code 1, a second after it has said
// so on stderr and here.
func (s *Server) Err() <-chan error { return s.failed }

func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default: // one is enough
	}
}

// Close stops the server at once: clients see their connections break. Calling
// it again waits for the first call and returns the same.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.cut()
		s.etcd.Close()
		s.watching.Wait()
		s.err = s.leaveFolder()
	})
	return s.err
}

// servers are the gRPC servers within etcd. Closing etcd waits, for as long as a
// request may take, for streams to end; watches and lease streams do not, while
// their clients live. So they are cut off first, as they would be if the
// machine were gone, which clients have to stand anyway.
type servers struct {
	closing atomic.Bool // etcd is being closed on purpose

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
		s.Stop()
	}
}

// endpoint is the URL for an address that is listened on.
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
