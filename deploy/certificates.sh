#!/bin/sh
# Makes the certificates with which core, shim and people know each other, and puts them into the cluster
# as secrets. Needs openssl and kubectl (as KUBECONFIG says). Once before the first `kubectl apply`, and
# again before they end; the core and the shim read new ones by themselves.
#
#   deploy/certificates.sh [FOLDER]      FOLDER keeps the authority's key: guard it. Default: certificates
#   NAMESPACE=evenhand DAYS=365          other values by the environment
#   CORE_GROUPS="b c"                    additional groups of cores of the chart (core.groups)
#
# cert-manager does the same by itself: docs/kubernetes.md.
set -eu
namespace=${NAMESPACE:-evenhand}
days=${DAYS:-365}
folder=${1:-certificates}
umask 077
mkdir -p "$folder"
cd "$folder"

key() { openssl ecparam -name prime256v1 -genkey -noout -out "$1"; }

if [ ! -f ca.key ]; then
  key ca.key
  openssl req -x509 -new -key ca.key -sha256 -days 3650 -subj "/CN=evenhand authority" -out ca.crt \
    -addext "keyUsage=critical,keyCertSign,cRLSign"
fi

# NAME NAMES USE: a key and a certificate, and the secret evenhand-NAME-tls with both and the authority's.
issue() {
  key "$1.key"
  openssl req -new -key "$1.key" -subj "/CN=evenhand-$1" -out "$1.csr"
  printf 'subjectAltName=%s\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=%s\nbasicConstraints=CA:FALSE\n' \
    "$2" "$3" > "$1.ext"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -sha256 -days "$days" \
    -extfile "$1.ext" -out "$1.crt" 2>/dev/null
  rm "$1.csr" "$1.ext"
  kubectl create secret generic "evenhand-$1-tls" --namespace "$namespace" --type kubernetes.io/tls \
    --from-file=tls.crt="$1.crt" --from-file=tls.key="$1.key" --from-file=ca.crt=ca.crt \
    --dry-run=client --output yaml | kubectl apply --server-side --force-conflicts --filename -
}

# Names of the core, and of the cores of each group: the service, those of the two cores of deploy-ha, and localhost for
# commands inside a container or through a port-forward.
core="DNS:localhost,IP:127.0.0.1"
for group in "" ${CORE_GROUPS:-}; do
  part=evenhand-core${group:+-$group}
  cores=evenhand-cores${group:+-$group}
  for name in "$part" "$part-0.$cores" "$part-1.$cores"; do
    core="$core,DNS:$name,DNS:$name.$namespace,DNS:$name.$namespace.svc"
  done
done
kubectl get namespace "$namespace" > /dev/null 2>&1 || kubectl create namespace "$namespace"
issue core "$core" serverAuth
issue shim DNS:evenhand-shim clientAuth
issue operator DNS:evenhand-operator clientAuth
issue follower DNS:evenhand-follower clientAuth
issue metrics DNS:evenhand-metrics clientAuth
