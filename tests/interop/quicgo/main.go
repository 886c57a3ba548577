// Command quicgo is quic-go as an endpoint of the interoperability tests. It implements the public
// runner's cases, with the command line of `uringcore interop`.
//
// quicgo server --certs DIR --www DIR --host HOST --port PORT    prints READY <port>, ends on
// SIGTERM quicgo client --certs DIR --downloads DIR                      fetches the URLs of
// $REQUESTS
//
// $TESTCASE names the case, $SSLKEYLOGFILE the key log. The status is 127 for a case that quic-go
// does not support.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/quic-go/quic-go"
)

const (
	hqInterop         = "hq-interop"
	probe             = "probe"
	statusUnsupported = 127
)

// errUnsupported ends a case that quic-go's API does not support.
var errUnsupported = errors.New("not supported")

type options struct {
	role, testCase, certs, www, downloads, host string
	port                                        int
	requests                                    []string
}

func main() {
	err := run(os.Args[1:])
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "quicgo:", err)
	if errors.Is(err, errUnsupported) {
		os.Exit(statusUnsupported)
	}
	os.Exit(1)
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("server or client?")
	}
	o := options{role: args[0], testCase: os.Getenv("TESTCASE"), requests: strings.Fields(os.Getenv("REQUESTS"))}
	flags := flag.NewFlagSet(o.role, flag.ContinueOnError)
	flags.StringVar(&o.certs, "certs", "/certs", "cert.pem, priv.key, ca.pem")
	flags.StringVar(&o.www, "www", "/www", "the served folder")
	flags.StringVar(&o.downloads, "downloads", "/downloads", "where fetched files go")
	flags.StringVar(&o.host, "host", "::", "the server's address")
	flags.IntVar(&o.port, "port", 443, "the server's port")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if err := o.check(); err != nil {
		return err
	}
	log, err := keyLog()
	if err != nil {
		return err
	}
	switch o.role {
	case "server":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return serve(ctx, o, log)
	case "client":
		return fetchAll(context.Background(), o, log)
	}
	return fmt.Errorf("no such role: %s", o.role)
}

// check rejects cases for which quic-go has no API.
func (o options) check() error {
	switch o.testCase {
	case "v2":
		return fmt.Errorf("%w: quic-go has no compatible version negotiation (RFC 9368)", errUnsupported)
	case "connectionmigration":
		return fmt.Errorf("%w: quic-go neither serves nor uses preferred_address", errUnsupported)
	case "web-websocket":
		return fmt.Errorf("%w: quic-go has no WebSocket", errUnsupported)
	}
	return nil
}

// quicConfig is equal for both roles except for a client's first version.
func (o options) quicConfig() *quic.Config {
	config := &quic.Config{
		Allow0RTT:       strings.HasSuffix(o.testCase, "zerortt"),
		EnableDatagrams: o.testCase == "datagram",
	}
	if o.testCase == "v2first" && o.role == "client" {
		config.Versions = []quic.Version{quic.Version2}
	}
	return config
}

func (o options) protocol() string {
	if isWeb(o.testCase) {
		return "h3"
	}
	switch o.testCase {
	case "http3":
		return "h3"
	case "datagram", "closecodes":
		return probe
	}
	return hqInterop
}

func (o options) authority() (*x509.CertPool, error) {
	pem, err := os.ReadFile(filepath.Join(o.certs, "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("ca.pem holds no certificate")
	}
	return roots, nil
}

func (o options) identity() (tls.Certificate, error) {
	return tls.LoadX509KeyPair(filepath.Join(o.certs, "cert.pem"), filepath.Join(o.certs, "priv.key"))
}

func keyLog() (io.Writer, error) {
	name := os.Getenv("SSLKEYLOGFILE")
	if name == "" {
		return nil, nil
	}
	return os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
}
