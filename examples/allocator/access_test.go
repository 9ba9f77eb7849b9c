package main

// An etcd with TLS on both sides, users and passwords.

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/f8949c05/orchestrator/examples/internal/stage"
)

// certificate returns the files of a new authority, of a certificate for this machine
// that it has signed, and of the key.
func certificate(t *testing.T, name string) (authority, cert, key string) {
	t.Helper()
	ca, err := stage.NewCA()
	require.NoError(t, err)
	signed, private, err := ca.Issue(name, "")
	require.NoError(t, err)
	write := func(kind string, text []byte) string {
		path := filepath.Join(t.TempDir(), name+kind)
		require.NoError(t, os.WriteFile(path, text, 0o600))
		return path
	}
	return write("-ca.pem", ca.PEM()), write(".pem", signed), write(".key", private)
}

// users enables passwords on the server, with one user who may do everything under
// /work/.
func users(t *testing.T, config clientv3.Config, user, password string) {
	t.Helper()
	root, err := clientv3.New(config)
	require.NoError(t, err)
	defer root.Close()
	ctx := t.Context()
	for _, step := range []func() error{
		func() error { _, err := root.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := root.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := root.UserAdd(ctx, user, password); return err },
		func() error { _, err := root.RoleAdd(ctx, "work"); return err },
		func() error {
			_, err := root.RoleGrantPermission(ctx, "work", "/work/", clientv3.GetPrefixRangeEnd("/work/"), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := root.UserGrantRole(ctx, user, "work"); return err },
		func() error { _, err := root.AuthEnable(ctx); return err },
	} {
		require.NoError(t, step())
	}
}

// TestWalk has what works with TLS and users.
func TestAccess_IsRefused(t *testing.T) {
	f := newFleet(t, true)
	endpoint := f.endpoint
	unknown := f.args[:slices.Index(f.args, "-etcd-user")] // the certificate names another user
	wrong := filepath.Join(t.TempDir(), "wrong")
	require.NoError(t, os.WriteFile(wrong, []byte("wrong"), 0o600))
	_, other, _ := certificate(t, "other")
	serverCA := f.args[slices.Index(f.args, "-etcd-ca")+1]
	refuses(t, []string{passwordEnv + "=pass word"}, map[string]refusal{
		"a wrong password":  {append(slices.Clone(f.args), "-etcd-password-file", wrong), "authentication failed"},
		"another authority": {append(slices.Clone(f.args), "-etcd-ca", other), endpoint},
	}, map[string]refusal{
		"no user":        {unknown, "permission denied"},
		"another prefix": {append(slices.Clone(f.args), "-prefix", "/other/"), "may not read and write the keys below /other/"},
		"no certificate": {[]string{"-etcd", endpoint, "-etcd-ca", serverCA}, "see TLS of the client's Config"},
		"no TLS":         {[]string{"-etcd", "http://" + hostOf(endpoint)}, "see TLS of the client's Config"},
	})
}

func TestAccess_BadInput(t *testing.T) {
	_, cert, key := certificate(t, "client")
	const https = "https://127.0.0.1:1"
	for name, step := range map[string]refusal{
		"no etcd to join":   {[]string{"-etcd-user", "app"}, "-etcd is missing"},
		"in the clear":      {[]string{"-etcd", "http://127.0.0.1:1", "-etcd-ca", cert}, "use https"},
		"no key":            {[]string{"-etcd", https, "-etcd-cert", cert}, "-etcd-key"},
		"a key for another": {[]string{"-etcd", https, "-etcd-cert", key, "-etcd-key", key}, "-etcd-cert"},
		"no authority":      {[]string{"-etcd", https, "-etcd-ca", key}, "-etcd-ca "},
		"no file":           {[]string{"-etcd", https, "-etcd-ca", "nowhere"}, "nowhere"},
		"no password":       {[]string{"-etcd", https, "-etcd-user", "app"}, passwordEnv},
		"a password in the clear": {
			[]string{"-etcd", "http://127.0.0.1:1,http://etcd.example:2379", "-etcd-user", "app"}, "http://etcd.example:2379 unencrypted",
		},
		"no file of a password": {[]string{"-etcd", https, "-etcd-user", "app", "-etcd-password-file", "nowhere"}, "nowhere"},
	} {
		s, err := parse(step.args)
		if err == nil {
			_, err = s.access.config(s.etcd)
		}
		require.ErrorContains(t, err, step.says, name)
	}
}

func TestAccess_PasswordsGoUnencryptedToLoopbackAlone(t *testing.T) {
	t.Setenv(passwordEnv, "pass word")
	cert, _, _ := certificate(t, "client")
	for endpoints, sent := range map[string]bool{
		"http://127.0.0.1:1":                        true,
		"http://[::1]:1,http://localhost:2":         true,
		"127.0.0.1:1":                               true,
		"https://etcd.example:1":                    true,
		"HTTPS://etcd.example:1":                    true,
		"https://etcd.example:1,http://10.0.0.1:1":  true, // the client encrypts to both
		"http://etcd.example:1":                     false,
		"HTTP://etcd.example:1":                     false,
		"etcd.example:1":                            false,
		"http://127.0.0.1:1,https://etcd.example:1": false, // the client encrypts to neither
		"http://127.0.0.1:1,http://10.0.0.1:1":      false,
		"http://127.0.0.1.example:1":                false,
		"http://localhost.example:1":                false,
		"http://127.0.0.1@etcd.example:1":           false,
		"http://0.0.0.0:1":                          false,
	} {
		for _, flags := range [][]string{nil, {"-etcd-password-in-clear"}} {
			s, err := parse(append([]string{"-etcd", endpoints, "-etcd-user", "app"}, flags...))
			require.NoError(t, err)
			config, err := s.access.config(s.etcd)
			if !sent && flags == nil {
				require.ErrorContains(t, err, "unencrypted", endpoints)
				require.Empty(t, config.Password)
				continue
			}
			require.NoError(t, err, endpoints)
			require.Equal(t, "pass word", config.Password)
		}
	}
	// An address without a scheme is encrypted if there is a certificate.
	config, err := access{user: "app", ca: cert}.config([]string{"etcd.example:1"})
	require.NoError(t, err)
	require.Equal(t, "pass word", config.Password)
}
