package kubernetes

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/f8949c05/orchestrator/replica"
)

const odd = "ü\"'\\\n\t\x00\x7f\xff\xfe%s"

func TestNames(t *testing.T) {
	label := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	seen := make(map[string]string)
	for _, table := range []string{
		"pollers", "pollers-2", "a", strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 2000), "Pollers", "pollers.", "-pollers-", odd, "", "---",
		"übersicht", strings.Repeat("-", 80), strings.Repeat("x", 29) + "-" + strings.Repeat("y", 90),
	} {
		n := namesOf(table)
		require.Regexp(t, label, n.table, "%q", table)
		require.Empty(t, seen[n.table], "%q", table)
		seen[n.table] = table
		for _, id := range []uint64{1, 1 << 40, math.MaxUint64} {
			for name, kind := range map[string]string{n.member(id): kindMember, n.orders(id): kindOrders} {
				got, of := n.parse(name)
				require.Equal(t, kind, got)
				require.Equal(t, id, of)
				require.Less(t, len(name), 253)
			}
		}
		got, part := n.parse(n.tasks(12))
		require.Equal(t, kindTasks, got)
		require.Equal(t, uint64(12), part)
		got, _ = n.parse(n.table)
		require.Equal(t, kindTable, got)
		for _, other := range []string{"", "x", n.table + "x", n.table + "-tasks-", n.table + "-tasks-x", n.table + "-12", n.member(1) + "x", "x" + n.table} {
			got, _ := n.parse(other)
			require.Empty(t, got, "%q", other)
		}
	}
	require.Equal(t, "pollers", namesOf("pollers").table, "a name that is a label stays")
}

func TestRecords_AnyBytes(t *testing.T) {
	m := replica.Member{ID: math.MaxUint64, Name: odd, Attributes: map[string]string{odd: odd}}
	text, err := encode(m)
	require.NoError(t, err)
	got, genuine := decode[replica.Member](text)
	require.True(t, genuine)
	require.Equal(t, m.Name, got.Name)
	require.Equal(t, m.Attributes, got.Attributes)
	require.Equal(t, m.ID, got.ID)
	for i := range text { // changed by hand
		_, genuine := decode[replica.Member](text[:i] + string(text[i]^1) + text[i+1:])
		require.False(t, genuine, "at %d", i)
	}
	_, genuine = decode[replica.Member]("")
	require.False(t, genuine)
	_, genuine = decode[replica.Member](sealed(`{"id":7`))
	require.False(t, genuine, "another type")
}

func TestRecords_Orders(t *testing.T) {
	run := replica.Order{Member: 7, Task: odd, Version: math.MaxUint64, Epoch: 1 << 62, Input: math.MinInt64, Generation: math.MaxUint64}
	stop := replica.Order{Member: 7, Task: "s", Version: 5, Epoch: 9, Stop: true}
	r := ordersRecord{Reading: "x"}.with(writer{9, 5}, []replica.Order{run, stop, {Member: 7, Task: "gone"}}, nil)
	r = r.with(writer{9, 6}, nil, []replica.Order{{Task: "gone"}})
	text, err := encode(r)
	require.NoError(t, err)
	got, genuine := decode[ordersRecord](text)
	require.True(t, genuine)
	require.Equal(t, r, got)
	all, toRun := got.of(7)
	require.ElementsMatch(t, []replica.Order{run, stop}, all)
	require.Equal(t, 1, toRun)
}

// An order has room for thousands of tasks.
func TestRecords_Sizes(t *testing.T) {
	count := func(bytes int) int {
		r, n := ordersRecord{}, 0
		for ; ; n += 500 {
			var set []replica.Order
			for i := range 500 {
				set = append(set, replica.Order{Task: fmt.Sprintf("%0*d", bytes, n+i), Version: 115_000_000_000_000_001, Epoch: 115_000_000_000_000_000})
			}
			next := r.with(writer{}, set, nil)
			if text, err := encode(next); err != nil || len(text) > maxRecord {
				return n
			}
			r = next
		}
	}
	t.Logf("tasks in an order: %d with names of 8 bytes, %d of 36, %d of 100", count(8), count(36), count(100))
	require.GreaterOrEqual(t, count(36), 3000)
}

func TestInCluster(t *testing.T) {
	dir := t.TempDir()
	env := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
	_, err := inCluster(func(string) string { return "" }, dir)
	require.ErrorContains(t, err, "this is no pod")
	_, err = inCluster(func(k string) string { return env[k] }, dir)
	require.ErrorContains(t, err, "automountServiceAccountToken")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "namespace"), []byte("shop\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("no certificate"), 0o600))
	_, err = inCluster(func(k string) string { return env[k] }, dir)
	require.ErrorContains(t, err, "no certificate in PEM")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ca.crt"), nil, 0o600))
	c, err := inCluster(func(k string) string { return env[k] }, dir)
	require.NoError(t, err)
	require.Equal(t, "https://[fd00::1]:443", c.URL)
	require.Equal(t, "shop", c.Namespace)
	require.Equal(t, filepath.Join(dir, "token"), c.TokenFile)
	_, err = InCluster("pollers").Read(t.Context(), replica.Query{})
	require.ErrorIs(t, err, replica.ErrInvalid)
}

func TestKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	const full = `{"contexts":[{"context":{"namespace":"shop"}}],"clusters":[{"cluster":{"server":"https://k:6443","insecure-skip-tls-verify":true}}],
		"users":[{"user":{"token":"secret"}}]}`
	_, err := kubeconfig(file)
	require.ErrorIs(t, err, os.ErrNotExist)
	write(full)
	c, err := kubeconfig(file)
	require.NoError(t, err)
	require.Equal(t, "https://k:6443", c.URL)
	require.Equal(t, "shop", c.Namespace)
	require.Equal(t, "secret", c.Token)
	require.True(t, c.TLS.InsecureSkipVerify)
	for with, message := range map[string]string{
		"apiVersion: v1\nclusters: []\n":                                                 "kubectl config view --raw --minify --flatten -o json",
		strings.Replace(full, `"users":[`, `"users":[{},`, 1):                            "has not one context",
		strings.Replace(full, `"token":"secret"`, `"exec":{"command":"gke-plugin"}`, 1):  "kubectl proxy",
		strings.Replace(full, `"token":"secret"`, `"client-certificate-data":"eA=="`, 1): "failed to find any PEM data",
	} {
		write(with)
		_, err := kubeconfig(file)
		require.ErrorContains(t, err, message)
	}
	_, err = Kubeconfig(file, "pollers").Read(t.Context(), replica.Query{})
	require.ErrorIs(t, err, replica.ErrInvalid)
}
