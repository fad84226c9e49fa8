package bridge

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	messageBytesMax = 64 << 20
	backoffMax      = 2 * time.Second
	keepaliveTime   = 30 * time.Second
)

// Files are the paths of the certificates and the token with which the bridge connects.
type Files struct {
	// CA is the authority of the core's certificate. Empty: no TLS.
	CA string
	// Certificate and Key are the bridge's own, for a core with --tls-client-ca.
	Certificate, Key string
	// Token is for a core with --tokens. The file is read at each call, so that a renewed token counts. Needs
	// CA.
	Token string
}

func (o Options) dial() (*grpc.ClientConn, error) {
	transport, err := o.Files.transport()
	if err != nil {
		return nil, err
	}
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(messageBytesMax)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: keepaliveTime}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: backoffMax / 20, Multiplier: 1.6, Jitter: 0.2, MaxDelay: backoffMax,
		}}),
	}
	if o.Files.Token != "" {
		dial = append(dial, grpc.WithPerRPCCredentials(token(o.Files.Token)))
	}
	return grpc.NewClient(o.Address, dial...)
}

func (f Files) transport() (credentials.TransportCredentials, error) {
	if f.CA == "" {
		return insecure.NewCredentials(), nil
	}
	pem, err := os.ReadFile(f.CA)
	if err != nil {
		return nil, err
	}
	trust := x509.NewCertPool()
	if !trust.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s holds no certificate", f.CA)
	}
	config := &tls.Config{RootCAs: trust, MinVersion: tls.VersionTLS12}
	if f.Certificate != "" {
		// The files are read at each connection, so that a renewed certificate counts.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
			return &pair, err
		}
	}
	return credentials.NewTLS(config), nil
}

// token is the path of a file with a bearer token.
type token string

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	text, err := os.ReadFile(string(t))
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(text))}, nil
}

// RequireTransportSecurity forbids a token on a connection that others can read.
func (token) RequireTransportSecurity() bool { return true }
