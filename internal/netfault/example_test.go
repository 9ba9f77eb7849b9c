package netfault_test

import (
	"bufio"
	"fmt"
	"net"

	"github.com/f8949c05/orchestrator/internal/netfault"
)

// Data that a client sends during a cut arrives when the connection heals.
func Example() {
	if err := cutAndHeal(); err != nil {
		fmt.Println(err)
	}
	// Output: all arrived: "hello\n"
}

func cutAndHeal() error {
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = server.Close() }()
	p, err := netfault.New(server.Addr().String())
	if err != nil {
		return err
	}
	defer func() { _ = p.Close() }()
	client, err := net.Dial("tcp", p.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	accepted, err := server.Accept()
	if err != nil {
		return err
	}
	defer func() { _ = accepted.Close() }()

	p.Cut(netfault.Up)
	if _, err := fmt.Fprintln(client, "hello"); err != nil {
		return err
	}
	p.Heal()
	line, err := bufio.NewReader(accepted).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Printf("all arrived: %q\n", line)
	return nil
}
