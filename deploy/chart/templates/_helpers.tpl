{{/* The prefix of all names. */}}
{{- define "evenhand.name" -}}
{{- .Values.fullnameOverride -}}
{{- end -}}

{{/* Labels of every object. */}}
{{- define "evenhand.labels" -}}
app.kubernetes.io/part-of: evenhand
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The label by which Services, budgets and policies select the pods of a part: (list $ "core"). */}}
{{- define "evenhand.selector" -}}
app.kubernetes.io/name: {{ include "evenhand.name" (index . 0) }}-{{ index . 1 }}
{{- end -}}

{{- define "evenhand.image" -}}
{{- with .Values.image -}}
{{- if .digest -}}
{{ .repository }}@{{ .digest }}
{{- else -}}
{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The Secret of a certificate: (list $ "core"). */}}
{{- define "evenhand.secret" -}}
{{- $part := index . 1 -}}
{{- with index . 0 -}}
{{- get .Values.tls.secrets $part | default (printf "%s-%s-tls" (include "evenhand.name" .) $part) -}}
{{- end -}}
{{- end -}}

{{/* The certificates that are needed, each with its name: core, shim, operator, metrics, and those of other parts that run. */}}
{{- define "evenhand.clients" -}}
{{- $names := list "shim" "operator" "follower" "metrics" -}}
{{- if .Values.console.enabled -}}
{{- $names = append $names "console" -}}
{{- end -}}
{{- $names | toJson -}}
{{- end -}}

{{/* The names in the certificate of the core: its Service, the names of two cores, and localhost for commands inside. */}}
{{- define "evenhand.coreNames" -}}
{{- $name := include "evenhand.name" . -}}
{{- $names := list -}}
{{- range list (printf "%s-core" $name) (printf "%s-core-0.%s-cores" $name $name) (printf "%s-core-1.%s-cores" $name $name) -}}
{{- $names = concat $names (list . (printf "%s.%s" . $.Release.Namespace) (printf "%s.%s.svc" . $.Release.Namespace)) -}}
{{- end -}}
{{- concat $names (list "localhost") .Values.tls.extraNames | toJson -}}
{{- end -}}

{{/* The addresses of the cores, for shims, cores and the console. */}}
{{- define "evenhand.cores" -}}
{{- $name := include "evenhand.name" . -}}
{{- if eq (int .Values.core.replicas) 2 -}}
{{ $name }}-core-0.{{ $name }}-cores:50051,{{ $name }}-core-1.{{ $name }}-cores:50051
{{- else -}}
{{ $name }}-core:50051
{{- end -}}
{{- end -}}

{{/* What every pod has: no links, no token, no root. */}}
{{- define "evenhand.pod" -}}
enableServiceLinks: false
# What places the cluster's pods is placed by the scheduler that is always there.
schedulerName: default-scheduler
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  fsGroup: 65532
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "evenhand.container" -}}
image: {{ include "evenhand.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where the pods of a part run: (list $ "core" .Values.core). */}}
{{- define "evenhand.placement" -}}
{{- $given := index . 2 -}}
{{- $selector := include "evenhand.selector" . -}}
{{- $two := eq (int $given.replicas) 2 -}}
{{- with $given.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $given.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $given.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- if $given.affinity }}
affinity:
  {{- toYaml $given.affinity | nindent 2 }}
{{- else if and $two (eq $given.spread.nodes "required") }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      - topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels:
            {{- $selector | nindent 12 }}
{{- else if and $two (eq $given.spread.nodes "preferred") }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- $selector | nindent 14 }}
{{- end }}
{{- if and $two (ne $given.spread.zones "none") }}
topologySpreadConstraints:
  - topologyKey: topology.kubernetes.io/zone
    maxSkew: 1
    whenUnsatisfiable: {{ $given.spread.zones }}
    labelSelector:
      matchLabels:
        {{- $selector | nindent 8 }}
{{- end }}
{{- end -}}

{{/* The probes of a part: (list .Values.core.probes "service of the readiness probe"). */}}
{{- define "evenhand.probes" -}}
{{- $given := index . 0 -}}
startupProbe:
  grpc: {port: 50052}
  {{- toYaml $given.startup | nindent 2 }}
livenessProbe:
  grpc: {port: 50052}
  {{- toYaml $given.liveness | nindent 2 }}
readinessProbe:
  grpc: {port: 50052, service: {{ index . 1 }}}
  {{- toYaml $given.readiness | nindent 2 }}
{{- end -}}

{{/* Labels and annotations of the pods of a part: (list $ "core" .Values.core). */}}
{{- define "evenhand.podMetadata" -}}
{{- $given := index . 2 -}}
labels:
  {{- include "evenhand.selector" . | nindent 2 }}
  {{- with $given.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with $given.podAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Fail for values that only together make no sense; everything else is said by values.schema.json. */}}
{{- define "evenhand.checked" -}}
{{- if and .Values.core.log.url (ne (int .Values.core.replicas) 2) -}}
{{- fail "core.log.url: a log of NATS is shared by two cores; set core.replicas=2" -}}
{{- end -}}
{{- if and (or .Values.core.log.credentialsSecret .Values.core.log.caSecret) (not .Values.core.log.url) -}}
{{- fail "core.log.credentialsSecret, core.log.caSecret: set core.log.url, too" -}}
{{- end -}}
{{- if and .Values.core.decisionLog.durable (not .Values.core.decisionLog.enabled) -}}
{{- fail "core.decisionLog.durable: set core.decisionLog.enabled=true, too" -}}
{{- end -}}
{{- if and .Values.core.history.passwordSecret (not .Values.core.history.url) -}}
{{- fail "core.history.passwordSecret: set core.history.url, too" -}}
{{- end -}}
{{- if ge (int .Values.tls.job.renewBeforeDays) (int .Values.tls.job.days) -}}
{{- fail "tls.job.renewBeforeDays: must be less than tls.job.days" -}}
{{- end -}}
{{- if and .Values.console.enabled (not .Values.core.tokensSecret) -}}
{{- fail "console.enabled: visitors need tokens, which the core has to know; set core.tokensSecret, too" -}}
{{- end -}}
{{- if and .Values.monitoring.podMonitor.enabled (ne (int .Values.shim.replicas) 2) (not .Values.shim.metrics) -}}
{{- fail "monitoring.podMonitor.enabled: a single shim serves metrics only with shim.metrics=true" -}}
{{- end -}}
{{- end -}}
