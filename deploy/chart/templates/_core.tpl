{{/* The objects of one group of cores: (list $ GROUP), a GROUP of "evenhand.groups". */}}
{{- define "evenhand.coreGroup" -}}
{{- $top := index . 0 -}}
{{- $group := index . 1 -}}
{{- $name := include "evenhand.name" $top -}}
{{- $part := $group.part -}}
{{- $core := $top.Values.core -}}
{{- $two := eq (int $core.replicas) 2 -}}
{{- $history := $core.history -}}
{{- $follows := and $two (not $core.log.url) -}}
{{- $addresses := join "," $group.addresses -}}
{{- $table := $core.groups -}}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-{{ $part }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "evenhand.labels" $top | nindent 4 }}
    {{- include "evenhand.selector" (list $top $part) | nindent 4 }}
spec:
  selector:
    {{- include "evenhand.selector" (list $top $part) | nindent 4 }}
  ports:
    - {name: grpc, port: 50051, targetPort: grpc}
    - {name: metrics, port: 9464, targetPort: metrics}
{{- if $two }}
---
# The names of the two cores, for shims and for each other. A core has its name also while it is not ready.
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-cores{{ $group.suffix }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "evenhand.labels" $top | nindent 4 }}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector:
    {{- include "evenhand.selector" (list $top $part) | nindent 4 }}
  ports:
    - {name: grpc, port: 50051, targetPort: grpc}
{{- end }}
---
apiVersion: apps/v1
kind: {{ ternary "StatefulSet" "Deployment" $two }}
metadata:
  name: {{ $name }}-{{ $part }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "evenhand.labels" $top | nindent 4 }}
    {{- include "evenhand.selector" (list $top $part) | nindent 4 }}
spec:
  replicas: {{ $core.replicas }}
  {{- if $two }}
  serviceName: {{ $name }}-cores{{ $group.suffix }}
  # Both start at once: neither is ready before a shim has registered at one of them.
  podManagementPolicy: Parallel
  updateStrategy: {type: RollingUpdate}
  {{- else }}
  # Never two at a time: the shim would know one of them alone.
  strategy: {type: Recreate}
  {{- end }}
  selector:
    matchLabels:
      {{- include "evenhand.selector" (list $top $part) | nindent 6 }}
  template:
    metadata:
      {{- include "evenhand.podMetadata" (list $top $part $core) | nindent 6 }}
    spec:
      serviceAccountName: {{ $name }}-core
      automountServiceAccountToken: false
      {{- include "evenhand.pod" $top | nindent 6 }}
      {{- include "evenhand.placement" (list $top $part $core) | nindent 6 }}
      terminationGracePeriodSeconds: {{ $core.terminationGracePeriodSeconds | default (ternary 60 30 $two) }}
      containers:
        - name: core
          {{- include "evenhand.container" $top | nindent 10 }}
          args:
            - serve
            - --listen=0.0.0.0:50051
            - --tls-cert=/etc/evenhand/tls/tls.crt
            - --tls-key=/etc/evenhand/tls/tls.key
            - --tls-client-ca=/etc/evenhand/tls/ca.crt
            - --roles=/etc/evenhand/roles/roles.yaml
            - --metrics=0.0.0.0:9464
            - --health=0.0.0.0:50052
            - --state-dir=/var/lib/evenhand
            {{- if $table }}
            - --cores=/etc/evenhand/cores/cores.yaml
            - --group={{ $group.name }}
            {{- end }}
            {{- if $follows }}
            # A core knows itself in this list, so both have the same arguments.
            - --follow={{ $addresses }}
            - --follow-tls-ca=/etc/evenhand/follower/ca.crt
            - --follow-tls-cert=/etc/evenhand/follower/tls.crt
            - --follow-tls-key=/etc/evenhand/follower/tls.key
            {{- end }}
            {{- with $core.log }}
            {{- if .url }}
            - {{ printf "--log=%s%s" .url $group.suffix | quote }}
            {{- end }}
            {{- if .credentialsSecret }}
            - --log-credentials=/etc/evenhand/log-credentials/credentials
            {{- end }}
            {{- if .caSecret }}
            - --log-tls-ca=/etc/evenhand/log-ca/ca.crt
            {{- end }}
            {{- end }}
            {{- if not $history.enabled }}
            - --history=off
            {{- else if $group.historyUrl }}
            - {{ printf "--history=%s" $group.historyUrl | quote }}
            {{- end }}
            {{- range list "retention" "minutesAfter" "tenMinutesAfter" "sample" "sizeMax" }}
            {{- if and $history.enabled (get $history .) }}
            - --history-{{ kebabcase . }}={{ get $history . }}
            {{- end }}
            {{- end }}
            {{- if $core.decisionLog.enabled }}
            - --decision-log=/var/lib/evenhand/decisions.jsonl
            {{- end }}
            {{- if $core.decisionLog.durable }}
            - --durable
            {{- end }}
            {{- if $core.tokensSecret }}
            - --tokens=/etc/evenhand/tokens/tokens.yaml
            {{- end }}
            {{- range $core.extraArgs }}
            - {{ . | quote }}
            {{- end }}
          env:
            # For the commands of people inside the container, such as `evenhand queues`.
            {{- if $table }}
            - {name: EVENHAND_CORES, value: /etc/evenhand/cores/cores.yaml}
            {{- else }}
            - {name: EVENHAND_CORE, value: {{ ternary $addresses "localhost:50051" $two | quote }}}
            {{- end }}
            - {name: EVENHAND_TLS_CA, value: /etc/evenhand/operator/ca.crt}
            - {name: EVENHAND_TLS_CERT, value: /etc/evenhand/operator/tls.crt}
            - {name: EVENHAND_TLS_KEY, value: /etc/evenhand/operator/tls.key}
            {{- if $history.passwordSecret }}
            # libpq reads the password from this variable, so that no argument shows it.
            - name: PGPASSWORD
              valueFrom: {secretKeyRef: {name: {{ $history.passwordSecret }}, key: password}}
            {{- end }}
            {{- with $core.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - {name: grpc, containerPort: 50051}
            - {name: health, containerPort: 50052}
            - {name: metrics, containerPort: 9464}
          # Two: ready is a core that leads, or follows a leader and shows the leader's state.
          {{- include "evenhand.probes" (list $core.probes (ternary "readiness" "si.v1.Scheduler" $two)) | nindent 10 }}
          resources:
            {{- toYaml $core.resources | nindent 12 }}
          volumeMounts:
            - {name: tls, mountPath: /etc/evenhand/tls, readOnly: true}
            - {name: operator, mountPath: /etc/evenhand/operator, readOnly: true}
            - {name: roles, mountPath: /etc/evenhand/roles, readOnly: true}
            - {name: state, mountPath: /var/lib/evenhand}
            {{- if $table }}
            - {name: cores, mountPath: /etc/evenhand/cores, readOnly: true}
            {{- end }}
            {{- if $follows }}
            - {name: follower, mountPath: /etc/evenhand/follower, readOnly: true}
            {{- end }}
            {{- if $core.log.credentialsSecret }}
            - {name: log-credentials, mountPath: /etc/evenhand/log-credentials, readOnly: true}
            {{- end }}
            {{- if $core.log.caSecret }}
            - {name: log-ca, mountPath: /etc/evenhand/log-ca, readOnly: true}
            {{- end }}
            {{- if $core.tokensSecret }}
            - {name: tokens, mountPath: /etc/evenhand/tokens, readOnly: true}
            {{- end }}
      volumes:
        - name: tls
          secret: {secretName: {{ include "evenhand.secret" (list $top "core") }}, defaultMode: 0440}
        - name: operator
          secret: {secretName: {{ include "evenhand.secret" (list $top "operator") }}, defaultMode: 0440}
        - name: roles
          configMap: {name: {{ $name }}-core}
        {{- if $table }}
        - name: cores
          configMap: {name: {{ $name }}-cores}
        {{- end }}
        {{- if $follows }}
        - name: follower
          secret: {secretName: {{ include "evenhand.secret" (list $top "follower") }}, defaultMode: 0440}
        {{- end }}
        {{- with $core.log.credentialsSecret }}
        - name: log-credentials
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $core.log.caSecret }}
        - name: log-ca
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- with $core.tokensSecret }}
        - name: tokens
          secret: {secretName: {{ . }}, defaultMode: 0440}
        {{- end }}
        {{- if and (not $two) $core.state.persistent }}
        - name: state
          persistentVolumeClaim: {claimName: {{ $name }}-{{ $part }}}
        {{- else if not $two }}
        - name: state
          emptyDir: {sizeLimit: {{ $core.state.size }}}
        {{- end }}
  {{- if $two }}
  volumeClaimTemplates:
    - apiVersion: v1
      kind: PersistentVolumeClaim
      metadata: {name: state}
      spec:
        accessModes: [ReadWriteOnce]
        {{- with $core.state.storageClass }}
        storageClassName: {{ . }}
        {{- end }}
        resources: {requests: {storage: {{ $core.state.size }}}}
  {{- end }}
{{- if and (not $two) $core.state.persistent }}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ $name }}-{{ $part }}
  namespace: {{ $top.Release.Namespace }}
  labels:
    {{- include "evenhand.labels" $top | nindent 4 }}
  annotations:
    # The state outlives `helm uninstall`, as the volumes of two cores do.
    helm.sh/resource-policy: keep
spec:
  accessModes: [ReadWriteOnce]
  {{- with $core.state.storageClass }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ $core.state.size }}}}
{{- end }}
{{- end -}}
