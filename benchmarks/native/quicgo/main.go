// HTTP/3 load by quic-go, with the options of h3_load: N connections, M requests in flight on each,
// every status and body compared. It is a second opinion: another implementation paces,
// acknowledges and batches differently. It needs more processor time than h3_load and is more often
// the bottleneck.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
)

const (
	hello      = "Hello, world!"
	serverName = "localhost"
 // A server that sends no answer for this long has failed.
	stall = 20 * time.Second
)

var (
	addr        = flag.String("addr", "", "host:port")
	pid         = flag.Int("pid", 0, "the server's process")
	ca          = flag.String("ca", "", "the certificate to trust")
	connections = flag.Int("connections", 1, "")
	streams     = flag.Int("streams", 1, "requests in flight on each connection")
	path        = flag.String("path", "/", "")
	size        = flag.Int("size", 0, "bytes of the pattern that are answered; 0 for the hello")
	upload      = flag.Int("upload", 0, "bytes of the pattern to send, whose count is answered")
	warmup      = flag.Float64("warmup", 0, "seconds")
	window      = flag.Float64("seconds", 1, "")
)

func main() {
	flag.Parse()
	report, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quicgo_load:", err)
		os.Exit(1)
	}
	line, err := json.Marshal(report)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

// pattern returns the bytes of pattern.rs, repeated to length.
func pattern(length int) []byte {
	block := make([]byte, 64*1024)
	state := uint32(1)
	for i := range block {
		state = state*1_664_525 + 1_013_904_223
		block[i] = byte(state >> 24)
	}
	return bytes.Repeat(block, length/len(block)+1)[:length]
}

// load is the state that the requesting goroutines share.
type load struct {
	url      string
	content  []byte
	answer   []byte
	requests atomic.Uint64
	measures atomic.Bool
	ended    atomic.Bool
}

func run() (map[string]float64, error) {
	_, port, err := net.SplitHostPort(*addr)
	if err != nil {
		return nil, err
	}
	l := &load{
		url:     "https://" + net.JoinHostPort(serverName, port) + *path,
		content: pattern(*upload),
	}
	switch {
	case *upload > 0:
		l.answer = binary.BigEndian.AppendUint64(nil, uint64(*upload))
	case *size > 0:
		l.answer = pattern(*size)
	default:
		l.answer = []byte(hello)
	}
	trusted, err := os.ReadFile(*ca)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(trusted)

	failed := make(chan error, *connections**streams)
	latencies := make([][]time.Duration, *connections**streams)
	var workers sync.WaitGroup
	for c := range *connections {
		// A transport has one connection to a server.
		transport := &http3.Transport{
			TLSClientConfig:    &tls.Config{RootCAs: roots, ServerName: serverName},
			DisableCompression: true,
			Dial: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (*quic.Conn, error) {
				return quic.DialAddr(ctx, *addr, t, q)
			},
		}
		defer transport.Close()
		for s := range *streams {
			mine := &latencies[c**streams+s]
			workers.Go(func() {
				if err := l.keepAsking(&http.Client{Transport: transport, Timeout: stall}, mine); err != nil {
					failed <- err
				}
			})
		}
	}

	if err := wait(failed, *warmup); err != nil {
		return nil, err
	}
	l.measures.Store(true)
	before := l.requests.Load()
	cpuBefore, err := cpuNanoseconds(*pid)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := wait(failed, *window); err != nil {
		return nil, err
	}
	seconds := time.Since(begin).Seconds()
	requests := float64(l.requests.Load() - before)
	cpu, err := cpuNanoseconds(*pid)
	if err != nil {
		return nil, err
	}
	l.ended.Store(true)
	workers.Wait()
	if err := wait(failed, 0); err != nil {
		return nil, err
	}
	all := slices.Sorted(slices.Values(slices.Concat(latencies...)))
	return map[string]float64{
		"requests":      requests,
		"seconds":       seconds,
		"bytes":         requests * float64(len(l.content)+len(l.answer)),
		"server_cpu_ns": float64(cpu - cpuBefore),
		"p50_us":        percentile(all, 50),
		"p99_us":        percentile(all, 99),
	}, nil
}

// wait lets the requests run for a time; a request that fails within it ends the program.
func wait(failed <-chan error, seconds float64) error {
	select {
	case err := <-failed:
		return err
	default:
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(time.Duration(seconds * float64(time.Second))):
		return nil
	}
}

func (l *load) keepAsking(client *http.Client, latencies *[]time.Duration) error {
	body := bytes.NewBuffer(make([]byte, 0, len(l.answer)+bytes.MinRead))
	for !l.ended.Load() {
		begin := time.Now()
		if err := l.ask(client, body); err != nil {
			return err
		}
		l.requests.Add(1)
		if l.measures.Load() {
			*latencies = append(*latencies, time.Since(begin))
		}
	}
	return nil
}

func (l *load) ask(client *http.Client, body *bytes.Buffer) error {
	var response *http.Response
	var err error
	if len(l.content) > 0 {
		response, err = client.Post(l.url, "application/octet-stream", bytes.NewReader(l.content))
	} else {
		response, err = client.Get(l.url)
	}
	if err != nil {
		return err
	}
	body.Reset()
	_, err = body.ReadFrom(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", response.StatusCode)
	}
	if !bytes.Equal(body.Bytes(), l.answer) {
		return fmt.Errorf("a body of %d bytes that differs", body.Len())
	}
	return nil
}

func percentile(sorted []time.Duration, percent float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(float64(len(sorted)-1)*percent/100 + 0.5)
	return float64(sorted[rank]) / 1000
}

// cpuNanoseconds returns the processor time of all living threads of a process; see cpu.rs.
func cpuNanoseconds(pid int) (uint64, error) {
	folder := fmt.Sprintf("/proc/%d/task", pid)
	tasks, err := os.ReadDir(folder)
	if err != nil {
		return 0, fmt.Errorf("the server (pid %d) is gone: %w", pid, err)
	}
	var total uint64
	for _, task := range tasks {
		text, err := os.ReadFile(folder + "/" + task.Name() + "/schedstat")
		if err != nil {
			// A thread may end between the listing and the read.
			continue
		}
		first, _, _ := strings.Cut(string(text), " ")
		used, err := strconv.ParseUint(first, 10, 64)
		if err != nil {
			return 0, err
		}
		total += used
	}
	return total, nil
}
