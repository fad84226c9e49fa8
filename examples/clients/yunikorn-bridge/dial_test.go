package bridge

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const secret = "0123456789abcdef-bridge"

func TestATokenOverTLS(t *testing.T) {
	folder := t.TempDir()
	files := writeCertificate(t, folder)
	tokens := writeFile(t, folder, "tokens.yaml", "tokens:\n  - {token: "+secret+", role: shim, name: bridge}\n")
	address := startCore(t, "--tls-cert", files.Certificate, "--tls-key", files.Key, "--tokens", tokens).address

	m := newManager(t)
	options := m.options(address)
	options.Files = Files{CA: files.CA, Token: writeFile(t, folder, "wrong", "not-the-token-of-anybody")}
	stranger, err := New(options)
	must(t, err)
	defer stranger.Stop()
	m.bridge = stranger
	if err := m.register(queues); err == nil || !strings.Contains(err.Error(), "Unauthenticated") {
		t.Errorf("a wrong token is not refused as one: %v", err)
	}

	options.Files.Token = writeFile(t, folder, "token", secret+"\n")
	m.connect(options, queues)
	m.node("n1", 1000, machine{})
	m.application("app", "root.a", 0)
	m.ask("app", map[string]want{"one": {cores: 1000}})
	m.runs(map[string]string{"one": "n1"})
}

func TestATokenIsNotSentWithoutTLS(t *testing.T) {
	token := writeFile(t, t.TempDir(), "token", secret)
	if _, err := New(Options{Address: "127.0.0.1:1", Files: Files{Token: token}}); err == nil {
		t.Error("a token may be read by everybody on the way")
	}
}

// writeCertificate makes a certificate of the loopback that is its own authority.
func writeCertificate(t *testing.T, folder string) Files {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	subject := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "core.example"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(30 * 24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, subject, subject, key.Public(), key)
	must(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(t, err)
	path := writeFile(t, folder, "core.crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})))
	return Files{
		CA: path, Certificate: path,
		Key: writeFile(t, folder, "core.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))),
	}
}

func writeFile(t *testing.T, folder, name, text string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}
